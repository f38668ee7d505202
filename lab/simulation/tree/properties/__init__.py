"""Properties of a tree of clouds, at every moment, at rest, and after all end-points have left.

Start at `checks.py`. No check asks a broker whether all is well: contracts are compared with what
other brokers have of them, and with the tables of the routers.
"""
