"""Jobs: sources, stages and tables put together, one job a file. Start at `ingest.py`."""
