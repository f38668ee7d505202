"""The experiments of the sources and the floors they are judged against; not part of the wheel.

Start reading at `experiments/`: an experiment is data and one `run`; `rig.py` builds its processes,
`roles/` has the work of those processes, `floor/` the raw C forwarders.
"""
