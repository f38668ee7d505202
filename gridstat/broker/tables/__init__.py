"""Tables of the routers: orders made from contracts, and the protocol that keeps routers in sync.

Start at `router_tables.py`; `router_orders.py` translates a contract into orders.
"""
