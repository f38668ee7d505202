"""Catalog of the streams in the log: name, period, and the interval in which events are expected.

The recorder records when a stream begins. A stream ends when its variable continues under another
number, or when its contract ends.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa

from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import CONTRACTS, STREAMS

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.record_kinds import RecordKind

KNOWN_STREAMS: Final = (
    "stream int, variable string, period_seconds bigint, period_per_seconds bigint, "
    "phase_ns bigint, every bigint, since_ns bigint, until_ns bigint"
)
_COLUMNS: Final = (
    "stream",
    "variable",
    "period_seconds",
    "period_per_seconds",
    "phase_ns",
    "every",
    "since_ns",
)
FOR_EVER_NS: Final = (1 << 63) - 1


class StreamCatalog:
    """Table of one log, made again only when the log has grown."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._known: tuple[tuple[int, int], pa.Table] | None = None
        """Extent and table in one tuple, since several threads read them."""

    def table(self) -> pa.Table:
        ends = LogReader(self._log, STREAMS).ends()[1], LogReader(self._log, CONTRACTS).ends()[1]
        known = self._known
        if known is None or ends != known[0]:
            known = ends, known_streams(self._log)
            self._known = known
        return known[1]


def known_streams(log: Path) -> pa.Table:
    """The columns of `KNOWN_STREAMS`, a row for each stream; `until_ns` is never null."""
    streams = read_all(log, STREAMS)
    over = _ends_of_contracts(log)
    followed: dict[str, int] = {}
    until: dict[int, int] = {}
    # Numbers are given in the order of time, also if a clock was set back.
    for row in sorted(streams.to_pylist(), key=lambda row: row["stream"], reverse=True):
        over_ns = over.get((row["subscription"], row["variable"]), FOR_EVER_NS)
        # A number of subscriptions may have been somebody else's before.
        is_own = over_ns >= row["since_ns"]
        ends = (followed.get(row["variable"], FOR_EVER_NS), over_ns if is_own else FOR_EVER_NS)
        until[row["stream"]] = min(ends)
        followed[row["variable"]] = row["since_ns"]
    ordered = [until[number] for number in streams.column("stream").to_pylist()]
    chosen = streams.select(_COLUMNS)
    return chosen.append_column("until_ns", pa.array(ordered, pa.int64()))


def _ends_of_contracts(log: Path) -> dict[tuple[int, str], int]:
    """Return the end of each contract whose last record says that it has ended."""
    over: dict[tuple[int, str], int] = {}
    for row in read_all(log, CONTRACTS).to_pylist():
        key = row["subscription"], row["variable"]
        if row["is_over"]:
            over.setdefault(key, row["time_ns"])
        else:
            over.pop(key, None)
    return over


def read_all(log: Path, kind: RecordKind) -> pa.Table:
    """Every record of a kind of which there are few; a copy, so that no file stays open."""
    reader = LogReader(log, kind)
    start, end = reader.ends()
    pieces = reader.slices(start, end, max(1, end))
    batches = [batch for piece in pieces for batch in reader.read(piece)]
    rows = pa.Table.from_batches(batches, kind.schema)
    return rows.take(pa.array(range(rows.num_rows), pa.int64()))
