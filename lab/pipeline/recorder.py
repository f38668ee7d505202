"""Recorder process to be killed: the real recorder with its writing thread, fed by this process.

    python -m lab.pipeline.recorder LOG REPORTED

It starts, notes how long there was no recorder, and reports on itself as `gridstat recorder` does;
only the events come from `feed.py` instead of a cloud. The file REPORTED has the number
of records that it has reported as recorded: the log must hold them after any kill.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from pathlib import Path
from typing import Final

from gridstat.record.gap_records import GapReason
from gridstat.record.log_settings import MIB, LogSettings, RecorderSettings
from gridstat.record.recorder import Recorder
from gridstat.record.status_file import write_status
from gridstat.record.writing_thread import WritingThread
from lab.pipeline.feed import RecorderRun, samples, variables
from lab.pipeline.orphan import end_with_parent

POLL_S: Final = 0.02
SETTINGS: Final = RecorderSettings(
    events=LogSettings(segment_bytes_max=400_000, log_bytes_max=256 * MIB),  # Half a minute each.
    side=LogSettings(segment_bytes_max=4_000, log_bytes_max=64 * MIB),
    sync_s=0.1,
    free_bytes_alarm=0,
)
_NUMBER: Final = struct.Struct("<q")


def main(argv: list[str]) -> None:
    end_with_parent()
    log, reported = Path(argv[0]), os.open(argv[1], os.O_WRONLY | os.O_CREAT, 0o644)
    recorder = Recorder(log, now_ns=time.time_ns, settings=SETTINGS)
    down_until_ns = recorder.note_downtime()
    writing = WritingThread(
        recorder,
        SETTINGS.sync_s,
        lambda: write_status(log, recorder.figures(), time.time_ns()),
    )
    writing.start()
    try:
        for variable in variables():
            recorder.begin(variable, 1, int(variable.variable_id))
        if down_until_ns is not None:
            recorder.miss(GapReason.DOWN, down_until_ns, time.time_ns(), None)
        _feed(recorder, reported)
    finally:
        writing.close()


def _feed(recorder: Recorder, reported: int) -> None:
    run = RecorderRun(recorder.figures().recorded, time.time_ns())
    fed = run.first
    while True:
        now_ns = time.time_ns()
        if (due := run.due(now_ns)) > fed:
            recorder.take(samples(run, fed, due - fed, now_ns))
            fed = due
        os.pwrite(reported, _NUMBER.pack(recorder.figures().recorded), 0)
        time.sleep(POLL_S)


def reported_records(reported: Path) -> int:
    """Return the number of records that recorders have reported in the file REPORTED."""
    content = reported.read_bytes() if reported.exists() else b""
    return int(_NUMBER.unpack(content)[0]) if content else 0


if __name__ == "__main__":
    main(sys.argv[1:])
