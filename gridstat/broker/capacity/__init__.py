"""What a cloud has, what it has promised, and what still fits, exactly.

Start at `allocation.py` for the way of a subscription from request to paths, `resources.py` for
what is promised so far, and `charges.py` for what a promise costs.
"""
