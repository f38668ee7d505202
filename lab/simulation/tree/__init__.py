"""Whole trees of clouds in virtual time: real leaf and QoS brokers, routers and end-points.

Start reading at `run.py`, the run of one seed; `failpoints.py` kills each broker at every persist
and every send of each operation. `shapes.py` has the trees, `swarm.py` draws faults and work,
`grid.py` makes the nodes, `properties/` has the checks, `bugs.py` proves that they find bugs.
Sessions, journals, routers and end-points are those of `lab.simulation`.
"""
