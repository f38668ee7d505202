"""The cloud as a part of a tree: what a leaf broker says to its parent, and does for it.

Start at `segment_desk.py`, which hears the parent. `asking.py` is the way of a subscription to a
variable of another cloud, `reserving.py` what a parent asks of this one.
"""
