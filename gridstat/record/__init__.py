"""The log of what was delivered: segments of checksummed Arrow batches, only ever appended to.

It imports model only. Start at `recorder.py` for the way of events and rows to the disk, at
`log_writer.py` for one log, and at `log_reader.py` for the way back; `segment.py` is the layout of
a file, `manifest.py` says how far each file counts.
"""
