"""The log of delivered events: append-only segments of checksummed Arrow batches.

It imports model only. Start at `recorder.py` for the path of events and rows to the disk, at
`log_writer.py` for one log, and at `log_reader.py` for reading; `segment.py` has the layout of a
file, `manifest.py` lists the valid part of each file.
"""
