"""Data model and laws of the grid: its types, and the formulas that all parts apply.

Pure: no I/O, no clock, no threads, and no import of another package of gridstat. Start reading at
`status.py` for the types and at `rate_law.py` for the law that every router applies.
"""
