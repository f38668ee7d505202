"""A whole cloud in virtual time: real broker, routers and end-points; a seed draws all the rest.

Start reading at `run.py`, the run of one seed. `swarm.py` draws the cloud, its faults and its work;
`world.py` is the clock, `network.py` the sessions, `channels.py` the event channels; `*_node.py`
drive the machines; `properties/` has the checks; `bugs.py` proves that the checks find bugs.
`python -m lab.simulation --help` runs it.
"""
