"""Random trees whose contracts are compared with a maximum flow on the wires.

`random_trees.py` draws the trees, `wire_flow.py` is the oracle, `contracts.py` asks real brokers in
virtual time, and `python -m lab.simulation.tree.disjoint` compares the two.
"""
