"""What a broker knows and keeps: operations, their journal, and the registry they add up to.

Start at `operations.py`; `journal.py` makes them durable, `registry.py` holds what they made.
"""
