"""The cloud as part of a tree of clouds: messages of a leaf broker to and from its parent.

Start at `parent_dispatcher.py`, which receives the parent's messages. `remote_contracts.py`
requests contracts with variables of other clouds; `segment_reservations.py` reserves, commits and
releases the segments that a parent requests of this cloud.
"""
