"""The event path: compiled, one thread, no lock and no allocation for an event.

May import model only. `_core.pyx` is the one door between Python and C; `rows.py` says what passes
through it; `reference.py` is the same core in plain Python. Start reading at `forwarder.c`.
"""
