"""The laws of alarms: what in a stream is worth telling, and since when.

Every law has a finite memory: whether an alarm begins at an instant depends on nothing older than
its `look_back_ns`. So the alarms of an interval are a pure function of the data, and evaluating a
day at once or in any pieces finds the same ones. Start at `runs.py`, the law that all share;
`limits.py`, `silence.py` and `oscillation.py` say when a condition is true, `ringdown.py` how a
swing is measured, `identity.py` what makes an alarm the same alarm.
"""
