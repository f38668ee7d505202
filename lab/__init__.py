"""A grid on one machine, for tests and experiments; outside the product, may import all of it.

Start with `grid.py` (real processes in network namespaces) or `simulation` (virtual time).
"""
