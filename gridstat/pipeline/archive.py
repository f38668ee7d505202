"""The step from the log to the archive: every recorded event becomes a row there or in quarantine.

Commits carry the number of the record after the last one that they hold. A batch that comes again
finds it, and what is there already is left out; the numbers are the log's own, so this holds even
if Spark's checkpoint is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow.compute as pc

from gridstat.model.errors import RecordsGone, StorageFailed
from gridstat.pipeline.data_files import forget, written_files
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.file_rows import FileRows
from gridstat.pipeline.schemas import EVENTS, QUARANTINE
from gridstat.pipeline.stages.clean import Judgement
from gridstat.pipeline.stages.intake import END, FIRST, intake
from gridstat.pipeline.time_spans import joined
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS as RECORDED_EVENTS
from gridstat.record.segment import FRAME_RECORDS_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from gridstat.model.plausibility import TimeBounds
    from gridstat.pipeline.data_files import DataFile
    from gridstat.pipeline.pipeline_folder import PipelineFolder
    from gridstat.pipeline.time_spans import Spans

BEGAN: Final = "log-began"
"""The mark of when the segment began that holds the last record."""
RECORD: Final = "record"
"""Mark of the archive and of the jobs that follow it: all records before this number are in."""
NS_PER_S: Final = 1_000_000_000
SPANS_MAX: Final = 4_096
"""Most intervals of late seconds that are looked up one by one; above it, near ones are merged."""


@dataclass(frozen=True, slots=True)
class Late:
    """Windows before a boundary into which events have come, by their start in seconds."""

    starts_s: tuple[int, ...]
    window_s: int

    def __bool__(self) -> bool:
        return bool(self.starts_s)

    def spans_ns(self) -> list[tuple[int, int]]:
        """The windows as spans of time from first to last nanosecond; neighbouring windows are one
        span."""
        spans: list[tuple[int, int]] = []
        for start_s in self.starts_s:
            start_ns, end_ns = start_s * NS_PER_S, (start_s + self.window_s) * NS_PER_S - 1
            if spans and spans[-1][1] + 1 == start_ns:
                spans[-1] = (spans[-1][0], end_ns)
            else:
                spans.append((start_ns, end_ns))
        return joined(spans, SPANS_MAX)


class Archive:
    """The two tables that together hold every record once."""

    def __init__(self, folder: PipelineFolder, bounds: TimeBounds) -> None:
        self.log = folder.log
        self.bounds = bounds
        self.events = StoredTable(folder.tables, EVENTS)
        self.quarantine = StoredTable(folder.tables, QUARANTINE)
        self._aside = folder.aside / "ingest"
        self._readers: dict[int, LogReader] = {}

    @property
    def taken(self) -> int:
        """All records before this one are in."""
        return self.events.mark(RECORD) or 0

    @property
    def recorded(self) -> int:
        """The number of the record that comes next."""
        return self._reader(1).ends()[1]

    def take(self, slices: DataFrame, closed_s: int | None, rows_max: int = 0) -> int:
        """Archive the records of some slices that are not in the archive yet; return the number of
        rows.

        `closed_s` is the second before which windows are closed. Duplicates of later events are
        searched in the open windows, duplicates of earlier ones in their own seconds. `rows_max` is
        the bound on a batch, 0 if there is none.
        """
        self.events.refresh()  # Whoever compacts has removed files since the last batch.
        start, quarantined = self.taken, self.quarantine.mark(RECORD) or 0
        self.check_log()
        judgement = Judgement(
            self.bounds, self._known(start, closed_s, rows_max), start, quarantined
        )
        files, (first, end) = self._write(slices, judgement)
        self._check_from(first)
        if end <= start:
            return 0
        bad = [file for file in files if file.partition["reason"] is not None]
        name = f"{start:020d}-{end:020d}"
        if bad:
            self.quarantine.add_files(bad, name, {RECORD: end})
        marks = {RECORD: end, BEGAN: self._reader(1).began_ns(end)}
        self.events.add_files([file for file in files if file not in bad], name, marks)
        forget(self._aside)
        return end - start

    def rows(self, spans_ns: Spans) -> FileRows:
        """Archived events created within one of the spans."""
        files = self.events.files_within("created_ns", spans_ns)
        paths = [str(self.events.folder / path) for path in files.column("path").to_pylist()]
        return FileRows(tuple(paths), spans_ns, pc.sum(files.column("num_records")).as_py() or 0)

    def check_log(self) -> None:
        """Raises if the log is another one than that of which the archive has the beginning."""
        taken, began_ns = self.events.mark(RECORD), self.events.mark(BEGAN)
        if taken is None:
            return
        found_ns = self._reader(1).began_ns(taken)
        if taken > self.recorded or (found_ns and began_ns and found_ns != began_ns):
            raise StorageFailed(
                f"{self.log} is not the log that was archived up to record {taken:,}; "
                f"it ends at {self.recorded:,}",
                hint="give this log a pipeline in a folder of its own",
            )

    def late(self, records: tuple[int, int], before_s: int, window_s: int) -> Late:
        """The windows before a boundary to which these records of the log belong."""
        reader = self._reader(window_s)
        return Late(late_windows(reader, records, before_s, window_s, self.bounds), window_s)

    def _reader(self, window_s: int) -> LogReader:
        """One for each who goes through the log at a pace of its own, so that each reads on."""
        if window_s not in self._readers:
            self._readers[window_s] = LogReader(self.log, RECORDED_EVENTS)
        return self._readers[window_s]

    def _check_from(self, first: int) -> None:
        """Raises if there are records between what is archived and a batch's first one."""
        oldest, taken = self._reader(1).ends()[0], self.events.mark(RECORD)
        wanted = oldest if taken is None else taken
        if first <= wanted:
            return
        if oldest > wanted:
            raise RecordsGone(
                f"{self.log} begins at record {oldest:,}, and the archive ends before {wanted:,}",
                hint="records between are lost; a pipeline in a new folder takes what is there",
            )
        raise StorageFailed(
            f"the batch begins at record {first:,}, and the archive ends before {wanted:,}: tables "
            "are older than the checkpoint",
            hint="remove checkpoints/ingest in the pipeline's folder; nothing is taken twice",
        )

    def _write(
        self, slices: DataFrame, judgement: Judgement
    ) -> tuple[list[DataFile], tuple[int, int]]:
        """Let the tasks read, check and write their shares in one pass.

        Returns the files and where the batch begins and ends, that is, what the tasks were given:
        who was killed may have brought into quarantine what is beyond it.
        """
        forget(self._aside)
        rows = intake(slices, self.log, judgement, self._aside).collect()
        ends = [(row[FIRST], row[END]) for row in rows if row.path is None]
        first = min((first for first, _ in ends), default=0)
        return written_files(rows), (first, max((end for _, end in ends), default=0))

    def _known(self, start: int, closed_s: int | None, rows_max: int) -> FileRows:
        spans: Spans = ((None, None),)
        if closed_s is not None:
            end = self.recorded
            if rows_max:  # A batch has whole frames, one at least.
                end = min(end, start + max(rows_max, FRAME_RECORDS_MAX))
            spans = ((closed_s * NS_PER_S, None), *self.late((start, end), closed_s, 1).spans_ns())
        return self.rows(spans)


def late_windows(
    reader: LogReader,
    records: tuple[int, int],
    before_s: int,
    window_s: int,
    bounds: TimeBounds,
) -> tuple[int, ...]:
    """Return the starts of the windows before `before_s` in which plausible records were created.

    Frames carry their earliest time, so of a log in order nothing is read at all.
    """
    before_ns = before_s * NS_PER_S
    start, end = max(records[0], reader.ends()[0]), records[1]
    if end <= start:
        return ()
    found: set[int] = set()
    for piece in reader.slices(start, end, end - start, latest_ns=before_ns - 1):
        for batch in reader.read(piece):
            created_ns = batch.column("created_ns").to_numpy()
            received_ns = batch.column("received_ns").to_numpy()
            is_late = (created_ns < before_ns) & (created_ns >= received_ns - bounds.behind_ns_max)
            seconds = created_ns[is_late] // NS_PER_S
            found.update(np.unique(seconds - seconds % window_s).tolist())
    return tuple(sorted(found))
