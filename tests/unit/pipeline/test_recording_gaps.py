"""Gaps of a log that excuse a silent stream."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from gridstat.pipeline.recording_gaps import RecordingGaps
from gridstat.record.gap_records import GapReason
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import GAPS

if TYPE_CHECKING:
    from pathlib import Path


def record(log: Path, *gaps: tuple[int, int, GapReason]) -> None:
    rows = [
        {"from_ns": from_ns, "to_ns": to_ns, "reason": reason.value, "events": None}
        for from_ns, to_ns, reason in gaps
    ]
    with LogWriter(log, GAPS, now_ns=lambda: 0) as writer:
        writer.append(pa.RecordBatch.from_pylist(rows, schema=GAPS.schema))
        writer.sync()


def test_events_dropped_among_others_excuse_nobody(tmp_path: Path) -> None:
    dropped = [GapReason.RING_FULL, GapReason.RECEIVER_FULL, GapReason.KERNEL_FULL]
    record(tmp_path, *((10, 20, reason) for reason in dropped), (30, 40, GapReason.DOWN))
    assert RecordingGaps(tmp_path).spans_ns(0) == [(30, 40)]


def test_gaps_long_over_are_left_out_and_new_ones_are_seen(tmp_path: Path) -> None:
    record(tmp_path, (10, 20, GapReason.DETACHED), (30, 40, GapReason.DISK))
    gaps = RecordingGaps(tmp_path)
    assert gaps.spans_ns(25) == [(30, 40)]
    record(tmp_path, (50, 60, GapReason.LOG_FULL))
    assert gaps.spans_ns(25) == [(30, 40), (50, 60)]
