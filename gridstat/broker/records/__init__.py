"""Durable state of a broker: operations, their journal, and the registry that they build.

Start at `operations.py`; `journal.py` makes operations durable, `registry.py` holds the state.
"""
