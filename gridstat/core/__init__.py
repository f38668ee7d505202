"""The event path: compiled, one thread, no lock and no allocation for an event.

May import model only. `_core.pyx` is the interface between Python and C; `rows.py` has the values
that pass through it; `reference.py` is the same core in plain Python. Start reading at
`forwarder.c`.
"""
