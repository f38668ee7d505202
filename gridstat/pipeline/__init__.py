"""Everything historical or heavy, on Spark: clean, archive, roll up, audit, alarm, mine, replay.

Start at `log_source.py`, by which Spark reads a recorder's log. Stages are pure functions from
tables to tables, jobs put sources, stages and sinks together.
"""
