"""Limited flooding, the capability (S0 A12): one variable on all channels of a cloud or scope.

`leaf_floods.py` registers the flooding of one cloud, `tree_flooding.py` is that of a broker above
clouds.
"""
