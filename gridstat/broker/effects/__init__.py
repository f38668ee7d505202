"""Effects of operations: on the registry and reservations at once, on routers once durable.

Start at `effects.py`, which passes each operation to the class that applies it.
"""
