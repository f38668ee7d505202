"""The step from the archive to the rollups: which windows have ended, and their rows.

A table of rollups carries two marks: `closed`, the second before which its windows are final, and
`record`, the end of the log that it has processed. New final windows are appended. Windows with
late events are computed again, from the archive, and replace their old rows.

If all clocks jump ahead and back, no window ends for as long, and all events are late. So the
coarser tables are updated not only when a window ends, but also at intervals of this process's
clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from gridstat.pipeline.archive import NS_PER_S, RECORD
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.file_rows import in_shares, in_turn
from gridstat.pipeline.schemas import ROLLUP_1H, ROLLUP_1M, ROLLUP_1S, ROLLUP_LIVE
from gridstat.pipeline.stages.rollup import complete, rollup
from gridstat.pipeline.stream_catalog import StreamCatalog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import SparkSession

    from gridstat.pipeline.archive import Archive
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.time_spans import Spans

CLOSED: Final = "closed"
"""The mark of a table of rollups: windows that end by this second are final."""
START: Final = "window_start"
LOOK_S: Final = 60.0
"""Longest time between two looks for late events of the coarser tables."""
_LOOKS_PER_WINDOW: Final = 6
"""Most computations of late windows in the length of a window, since each reads a whole window."""
_US_PER_S: Final = 1_000_000


@dataclass(slots=True)
class Rollups:
    """The tables of one archive, finest first."""

    archive: Archive
    streams: StreamCatalog
    live: StoredTable
    by_window: Mapping[int, StoredTable]
    """Tables by the length of their windows in seconds."""
    now_s: Callable[[], float] = time.monotonic
    _look_s: float = 0.0
    """Time at which to look at the log next."""
    _late_s: dict[int, float] = field(default_factory=dict)
    """Time at which late windows of each length may be computed next."""

    @classmethod
    def of(cls, folder: PipelineFolder, archive: Archive) -> Rollups:
        lengths = {1: ROLLUP_1S, 60: ROLLUP_1M, 3_600: ROLLUP_1H}
        stored = {length: StoredTable(folder.tables, table) for length, table in lengths.items()}
        live = StoredTable(folder.tables, ROLLUP_LIVE)
        return cls(archive, StreamCatalog(archive.log), live, stored)

    @property
    def closed_s(self) -> int | None:
        """Seconds before this one are final."""
        return self.by_window[1].mark(CLOSED)

    def advance(self, spark: SparkSession, watermark_ns: int) -> None:
        """Makes seconds final that have ended by the watermark, and shows those that are open."""
        table, closed_s, taken = self.by_window[1], watermark_ns // NS_PER_S, self.archive.taken
        rows = self._compute(spark, 1, table.mark(CLOSED), None)
        is_over = pc.less(rows.column(START), _moment(closed_s))
        self._commit(1, rows.filter(is_over), closed_s, taken)
        self.live.overwrite(rows.filter(pc.invert(is_over)))

    def has_ended(self, watermark_ns: int) -> bool:
        """Return whether `advance_coarse` has something to do."""
        return self.now_s() >= self._look_s or any(
            _closed_s(watermark_ns, window_s) > (table.mark(CLOSED) or 0)
            for window_s, table in self._coarse()
        )

    def advance_coarse(self, spark: SparkSession, watermark_ns: int) -> None:
        """Makes minutes and hours final that have ended by the watermark.

        An hour has millions of events: this may run in another thread, beside the batches.
        """
        has_ended = False
        for window_s, table in self._coarse():
            closed_s = _closed_s(watermark_ns, window_s)
            if closed_s > (table.mark(CLOSED) or 0):
                self._advance_window(spark, window_s, closed_s)
                has_ended = True
        if has_ended or self.now_s() >= self._look_s:
            self._look_at_log(spark)
            self._look_s = self.now_s() + LOOK_S

    def flush(self, spark: SparkSession) -> None:
        """Writes what is still open as if it were over; should more come, it is written again."""
        for window_s, table in self.by_window.items():
            taken = self.archive.taken
            rows = self._compute(spark, window_s, table.mark(CLOSED), None)
            table.upsert(rows, START, {RECORD: taken})
        self.live.overwrite(self.live.empty())

    def taken(self) -> int:
        """All tables have seen the records before this one; the log need not keep them."""
        return min(table.mark(RECORD) or 0 for table in self.by_window.values())

    def _coarse(self) -> list[tuple[int, StoredTable]]:
        return [(window_s, table) for window_s, table in self.by_window.items() if window_s > 1]

    def _advance_window(self, spark: SparkSession, window_s: int, closed_s: int) -> None:
        # Before the rows are read: what comes meanwhile is for the next time.
        taken = self.archive.taken
        rows = self._compute(spark, window_s, self.by_window[window_s].mark(CLOSED), closed_s)
        self._commit(window_s, rows, closed_s, taken)
        self._late_s[window_s] = self.now_s() + max(LOOK_S, window_s / _LOOKS_PER_WINDOW)

    def _look_at_log(self, spark: SparkSession) -> None:
        """Advance the record mark past events that do not concern a table, though its window is
        still open, and compute ended windows with late events again."""
        taken = self.archive.taken
        for window_s, table in self._coarse():
            closed_s, seen = table.mark(CLOSED), table.mark(RECORD) or 0
            if seen >= taken:
                continue
            if closed_s is None or not self.archive.late((seen, taken), closed_s, window_s):
                table.add_files([], "", {RECORD: taken})
            elif self.now_s() >= self._late_s.get(window_s, 0.0):
                self._advance_window(spark, window_s, closed_s)

    def _compute(
        self, spark: SparkSession, window_s: int, from_s: int | None, to_s: int | None
    ) -> pa.Table:
        """Windows between the two seconds, and earlier ones that late events have touched."""
        last_ns = None if to_s is None else to_s * NS_PER_S - 1
        spans: Spans = ((None, last_ns),)
        if from_s is not None:
            seen = self.by_window[window_s].mark(RECORD) or 0
            late = self.archive.late((seen, self.archive.taken), from_s, window_s)
            spans = (*late.spans_ns(), (from_s * NS_PER_S, last_ns))
        events = self.archive.rows(spans)
        tasks = [in_shares(spark, events)] if window_s == 1 else in_turn(spark, events)
        measured = [rollup(shares, events, window_s).toArrow() for shares in tasks]
        return complete(pa.concat_tables(measured), self.streams.table(), window_s)

    def _commit(self, window_s: int, rows: pa.Table, closed_s: int, taken: int) -> None:
        """`taken` is the end of what of the log the rows are of."""
        table = self.by_window[window_s]
        marks = {CLOSED: max(closed_s, table.mark(CLOSED) or closed_s), RECORD: taken}
        if not rows.num_rows:
            table.add_files([], "", marks)
        elif _is_after(rows, table):
            table.append(rows, marks)
        else:
            table.upsert(rows, START, marks)


def _closed_s(watermark_ns: int, window_s: int) -> int:
    return watermark_ns // (window_s * NS_PER_S) * window_s


def _is_after(rows: pa.Table, table: StoredTable) -> bool:
    highest = table.highest(START)
    return highest is None or pc.min(rows.column(START)).as_py() > highest


def _moment(second: int) -> pa.Scalar:
    return pa.scalar(second * _US_PER_S, pa.timestamp("us", tz="UTC"))
