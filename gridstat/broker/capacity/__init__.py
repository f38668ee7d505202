"""Admission control of one cloud: its capacities, the reservations on them, and what still fits.

Start at `allocator.py` to follow a subscription from its request to its paths. `resources.py` holds
the reservations, and `charges.py` computes what a reservation costs.
"""
