"""The experiments of the sources and the floors they are judged against; not part of the wheel.

Start reading at `experiments/`: an experiment is data and one `run`; `rig.py` builds its processes,
`roles/` is what those processes do, `floor/` holds the raw C forwarders.
"""
