"""A made-up power system: what PMUs would measure, when, and what of it arrived.

Pure: no socket and no clock; `console/processes` gives it both.
"""
