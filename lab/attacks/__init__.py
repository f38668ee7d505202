"""Attacks on the event path of a grid in namespaces: a stranger on the wire, without any key.

`attacked_grid.py` is the grid, `attacker.py` the stranger's program in one of its namespaces,
`forgery.py` the datagrams that it can make. `tests/attacks` uses them with small counts,
`corpus.py` (`make attacks`) with a million, and `kills.py` looks for counters used twice.
"""
