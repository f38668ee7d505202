"""A whole cloud in virtual time: the real broker, routers and end-points, and everything else drawn
from a seed.

Start reading at `run.py`: what one seed does. `swarm.py` draws the cloud, its faults and its work;
`world.py` is the clock, `network.py` the sessions, `channels.py` the event channels; `*_node.py`
drive the machines; `properties/` say what must hold; `bugs.py` proves that they are looked at.
`python -m lab.simulation --help` runs it.
"""
