"""Soak tests of the pipeline: drivers and recorders that are killed while they work.

Start at `soak.py`; `recorder.py` and `driver.py` are the killed processes, `feed.py` makes the
recorded events, `same.py` and `handed_on.py` check the tables and alarms at the end.
"""
