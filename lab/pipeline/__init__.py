"""The pipeline under fire: drivers and writers of the log that are killed while they work.

Start at `soak.py`; `killing.py` starts and kills, `same.py` compares what is left.
"""
