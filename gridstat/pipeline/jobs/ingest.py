"""Ingest: the one streaming job, from the log to archive, quarantine and rollups.

    folder = PipelineFolder(Path("pipeline"))
    Ingest(spark, folder).run_to_end()          # all that is recorded, then return
    Ingest(spark, folder).run(stop)             # until `stop` is set, then flush

Spark keeps no state for it: a batch is a function of a stretch of the log and of the tables before
it, and every commit tells how far it reaches. So a driver may be killed at any instant, and the
next one goes on with nothing lost and nothing twice.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.model.errors import GridStatError, StorageFailed
from gridstat.model.plausibility import TimeBounds
from gridstat.pipeline.archive import NS_PER_S, Archive
from gridstat.pipeline.background_worker import BackgroundWorker
from gridstat.pipeline.data_files import forget
from gridstat.pipeline.file_rows import ROWS_PER_TASK_MIN, SHARES_MAX
from gridstat.pipeline.jobs.compact import CompactSettings, compact
from gridstat.pipeline.progress import Progress, read_progress, write_progress
from gridstat.pipeline.rollup_windows import Rollups
from gridstat.pipeline.slice_source import NAME as SLICES
from gridstat.pipeline.spark_errors import plain_error
from gridstat.record.status_file import read_status

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gridstat.pipeline.pipeline_folder import PipelineFolder

log = logging.getLogger(__name__)

JOB: Final = "ingest"
POLL_S: Final = 0.2
QUIET_LOOK_S: Final = 1.0
STATUS_NS_MAX: Final = 5_000_000_000
"""Age of a recorder's status from which on the recorder counts as stopped."""
QUIET_NS: Final = 2_000_000_000
"""Largest delay of a publisher's clock behind the recorder's."""


@dataclass(frozen=True, slots=True)
class IngestSettings:
    """Settings of the job."""

    trigger_s: float = 0.5
    rows_per_batch: int = 1_000_000
    delay_s: float = 2.0
    """Time after the newest event for which a window waits for older events."""
    bounds: TimeBounds = field(default_factory=TimeBounds)
    rows_per_share: int = ROWS_PER_TASK_MIN
    """Fewer rows than these are not worth a task and a file of their own."""
    compact_s: float = 600.0
    """Interval at which tables are compacted between two batches; 0: never."""
    keeps_log: bool = False
    """Others read the log, too, and it must not let go of what is in our tables."""


class Follower(Protocol):
    """Work on final data after each batch; keeps its own mark, so that it misses nothing."""

    def followed_ns(self) -> int | None:
        """Up to which instant its tables are, by what it has committed; None at the beginning."""

    def follow(self, spark: SparkSession, archive: Archive, span_ns: tuple[int, int]) -> int:
        """Works on events created from one instant up to, without, another; all are final.

        Commits by itself, with a mark, and returns how many rows it has added.
        """


class _Ended(Exception):  # noqa: N818 - It is an end, no error.
    """A batch came after the end was requested."""


class Ingest:
    """The job in one folder. One at a time: `run` holds the folder's lock."""

    def __init__(
        self,
        spark: SparkSession,
        folder: PipelineFolder,
        settings: IngestSettings | None = None,
        *,
        followers: Sequence[Follower] = (),
        now_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        self._spark = spark
        self._folder = folder
        self._settings = IngestSettings() if settings is None else settings
        self._followers = followers
        self._now_ns = now_ns
        self._busy = threading.Lock()
        self._background = BackgroundWorker("coarse-rollups")
        self._is_over = False
        self._compacted_s = time.monotonic()
        self._looked_s = 0.0
        self._failure: GridStatError | None = None
        self._state = "running"
        self._last: Progress | None = None
        self._alarms = int(read_progress(folder.path).get("alarms", 0))
        self.archive = Archive(folder, self._settings.bounds)
        self.rollups = Rollups.of(folder, self.archive)

    def run(self, stop: threading.Event) -> None:
        """Process recorded data as it comes, until `stop` is set; then process the rest and
        flush."""
        with self._locked_folder():
            self._await(self._start(available_now=False), stop)
            self._state = "draining"
            self._await(self._start(available_now=True), threading.Event())
            self._advance_rest()
            self._finish()

    def run_to_end(self, *, has_flush: bool = True) -> None:
        """Process all data that is recorded by now; flush unless more will come."""
        with self._locked_folder():
            self._await(self._start(available_now=True), threading.Event())
            self._advance_rest()
            if has_flush:
                self._finish()

    @contextmanager
    def _locked_folder(self) -> Iterator[None]:
        """Hold the folder's lock until all work of this job has ended, and raise its errors in
        plain text."""
        with self._folder.lock(JOB):
            forget(self._folder.aside)
            try:
                yield
            except Exception as error:
                plain = plain_error(self._failure or error) or plain_error(error)
                if plain is not None:
                    raise plain from error
                raise
            finally:
                with suppress(Exception):  # It is told by now, or something else is.
                    self._background.wait()

    def take(self, slices: DataFrame, batch_id: int) -> None:
        """One batch, slices of the log, to all tables."""
        began = time.monotonic()
        # The first may be one of another process, which had another bound.
        rows_max = self._settings.rows_per_batch if self._last is not None else 0
        rows = self.archive.take(slices, self.rollups.closed_s, rows_max)
        newest_ns = self.archive.events.highest("created_ns")
        if newest_ns is None:
            return
        self.rollups.advance(self._spark, self._watermark_ns(newest_ns))
        self._offer_coarse()
        alarms = self._follow()
        rate = rows / max(time.monotonic() - began, 1e-9)
        self._report(batch_id, rate, newest_ns, alarms)

    def _start(self, *, available_now: bool) -> StreamingQuery:
        self._failure = None
        source = self._spark.readStream.format(SLICES).option(
            "rowsPerBatch", self._settings.rows_per_batch
        )
        shares = min(SHARES_MAX, self._spark.sparkContext.defaultParallelism)
        source = source.option("shares", shares)
        source = source.option("rowsPerShare", self._settings.rows_per_share)
        writer = source.load(str(self._folder.log)).writeStream.queryName(JOB)
        writer = writer.option("checkpointLocation", str(self._folder.checkpoint(JOB)))
        writer = writer.foreachBatch(self._take_guarded)
        if available_now:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=f"{self._settings.trigger_s} seconds").start()

    def _take_guarded(self, slices: DataFrame, batch_id: int) -> None:
        with self._busy:
            if self._is_over:  # Taken by the next query; to return would call it done.
                raise _Ended("asked to stop before this batch")
            try:
                self.take(slices, batch_id)
            except GridStatError as error:
                # The text of the error is enough; its frames would hold segments of the log open.
                self._failure = error.with_traceback(None)
                raise self._failure from None

    def _await(self, query: StreamingQuery, stop: threading.Event) -> None:
        try:
            while not stop.wait(POLL_S):
                if not query.isActive:
                    query.awaitTermination()  # Raises what it died of.
                    return
                self._maintain_tables()
            with self._busy:  # Between batches nothing has to be done again.
                self._is_over = True
            query.stop()  # Not under the lock, which a batch that begins now waits for.
            self._is_over = False
        except BaseException:
            query.stop()
            raise

    def _advance_rest(self) -> None:
        """Compute the remaining minutes and hours, once no more batches come."""
        self._background.wait()
        newest_ns = self.archive.events.highest("created_ns")
        if newest_ns is not None:
            self.rollups.advance_coarse(self._spark, self._watermark_ns(newest_ns))

    def _offer_coarse(self) -> None:
        """Start the computation of minutes and hours that have ended, and of those that a killed
        driver left."""
        self._background.check()
        newest_ns = self.archive.events.highest("created_ns")
        # Compaction waits for a gap between two pieces, and the log for compaction.
        if newest_ns is None or self._background.is_busy or self._is_compaction_due():
            return
        watermark_ns = self._watermark_ns(newest_ns)
        if self.rollups.has_ended(watermark_ns):
            self._background.offer(partial(self.rollups.advance_coarse, self._spark, watermark_ns))

    def _watermark_ns(self, newest_ns: int) -> int:
        return newest_ns - round(self._settings.delay_s * NS_PER_S)

    def _maintain_tables(self) -> None:
        """Compact tables between batches; compute windows and alarms while no event comes."""
        now_s = time.monotonic()
        if self._is_compaction_due():
            with self._busy:
                if not self._background.is_busy:  # Else one of the two would have to begin again.
                    self._compact()
        if now_s - self._looked_s >= QUIET_LOOK_S:
            self._looked_s = now_s
            with self._busy:
                self._offer_coarse()
                self._alarms += self._follow(self.quiet_ns())

    def _is_compaction_due(self) -> bool:
        since_s = time.monotonic() - self._compacted_s
        return bool(self._settings.compact_s) and since_s >= self._settings.compact_s

    def _compact(self) -> None:
        """Tried again after a while if it fails: many small files are slow, and not wrong."""
        try:
            compact(self._folder, CompactSettings(releases_log=not self._settings.keeps_log))
        except StorageFailed as error:
            log.warning("not_compacted reason=%s", str(error))
        self._compacted_s = time.monotonic()
        self._refresh()

    def _refresh(self) -> None:
        archive, rollups = self.archive, self.rollups
        tables = (archive.events, archive.quarantine, rollups.live, *rollups.by_window.values())
        for table in tables:
            table.refresh()

    def quiet_ns(self) -> int:
        """Up to when a recorder at work has recorded nothing new, so that silence is silence; 0
        if there is none at work, or if something waits to be taken."""
        status = read_status(self._folder.log) or {}
        time_ns, recorded = status.get("time_ns"), status.get("recorded")
        if not isinstance(time_ns, int) or not isinstance(recorded, int):
            return 0
        is_at_work = abs(self._now_ns() - time_ns) <= STATUS_NS_MAX
        if not is_at_work or not 0 < recorded <= self.archive.taken:
            return 0
        return int(time_ns - self._settings.delay_s * NS_PER_S - QUIET_NS)

    def _follow(self, until_ns: int = 0) -> int:
        """Lets the followers see what has become final, or all up to an instant that is later;
        returns how many rows they have added."""
        until_ns = max(until_ns, (self.rollups.closed_s or 0) * NS_PER_S)
        added = 0
        for follower in self._followers:
            from_ns = follower.followed_ns() or 0
            if until_ns > from_ns:
                added += follower.follow(self._spark, self.archive, (from_ns, until_ns))
        return added

    def _finish(self) -> None:
        if self.archive.events.rows():
            self.rollups.flush(self._spark)
        newest_ns = self.archive.events.highest("created_ns")
        self._alarms += 0 if newest_ns is None else self._follow(newest_ns + 1)
        self._state = "ended"
        if self._last is not None:
            self._last = replace(
                self._last, state=self._state, alarms=self._alarms, updated_ns=self._now_ns()
            )
            write_progress(self._folder.path, self._last)

    def _report(self, batch_id: int, rate: float, newest_ns: int, alarms: int) -> None:
        self._alarms += alarms
        now_ns = self._now_ns()
        self._last = Progress(
            state=self._state,
            batch=batch_id,
            recorded=self.archive.recorded,
            taken=self.archive.taken,
            archived=self.archive.events.rows(),
            quarantined=self.archive.quarantine.rows(),
            alarms=self._alarms,
            rows_per_s=rate,
            lag_s=max(0.0, (now_ns - newest_ns) / NS_PER_S),
            watermark_ns=self._watermark_ns(newest_ns),
            updated_ns=now_ns,
        )
        write_progress(self._folder.path, self._last)
