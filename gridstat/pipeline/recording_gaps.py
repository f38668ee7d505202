"""Intervals in which nothing was recorded: read from the log once, and again when the log has
grown."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.pipeline.stream_catalog import read_all
from gridstat.record.gap_records import GapReason
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import GAPS

if TYPE_CHECKING:
    from pathlib import Path

ALL_IS_MISSING: Final = frozenset(
    reason.value
    for reason in (GapReason.DOWN, GapReason.DETACHED, GapReason.LOG_FULL, GapReason.DISK)
)
"""Reasons of whole gaps; the other reasons are about single dropped events among received ones."""


class RecordingGaps:
    """The gaps of one log."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._end = -1
        self._spans_ns: list[tuple[int, int]] = []

    def spans_ns(self, since_ns: int) -> list[tuple[int, int]]:
        """Return the first and last nanosecond of each gap that ended since then."""
        end = LogReader(self._log, GAPS).ends()[1]
        if end != self._end:
            rows = read_all(self._log, GAPS).to_pylist()
            self._spans_ns = [
                (row["from_ns"], row["to_ns"]) for row in rows if row["reason"] in ALL_IS_MISSING
            ]
            self._end = end
        return [span for span in self._spans_ns if span[1] >= since_ns]
