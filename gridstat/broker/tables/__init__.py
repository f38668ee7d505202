"""What each router is to have: orders made from contracts, and the talk that keeps routers in step.

Start at `router_tables.py`; `orders.py` says what a contract means to a router.
"""
