"""Pure functions from tables to tables, each with the columns it takes and gives.

No session, no files and no clock in here; jobs put sources, stages and sinks together.
"""
