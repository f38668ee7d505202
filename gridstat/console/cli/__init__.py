"""The command line: one sub-command a file, put together in `main.py`."""
