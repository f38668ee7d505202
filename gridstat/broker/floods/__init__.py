"""Limited flooding, the capability (S0 A12): one variable on every channel of a cloud or scope.

`leaf_flooding.py` is the flooding of one cloud, `tree_flooding.py` that of a broker above clouds.
"""
