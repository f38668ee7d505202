"""What each operation does: to the registry and the reservations at once, to routers once durable.

Start at `effects.py`, which finds the effect of an operation in its neighbours.
"""
