"""The management plane of one cloud: what it has, what it has promised, and who may have more.

It imports model and net only, and reads no clock and no socket: drivers stand outside. Start at
`allocation.py` for the way of a subscription from request to paths, `resources.py` for what is
promised so far, and `charges.py` for what a promise costs.
"""
