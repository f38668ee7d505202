"""Words and laws: what the grid is made of and which formulas it obeys.

Pure: no I/O, no clock, no threads, and no import of another package of ours. Start reading at
`status.py` for the words and at `rate_law.py` for the law that every router obeys.
"""
