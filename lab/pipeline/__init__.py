"""The pipeline under fire: drivers and recorders that are killed while they work.

Start at `soak.py`; `recorder.py` and `driver.py` are what is killed, `feed.py` is what there is to
record, `same.py` and `handed_on.py` judge what is left.
"""
