"""Effects of operations: on the registry and reservations at once, on routers once durable.

Start at `effects.py`, which has each operation applied by the capability that owns it.
"""
