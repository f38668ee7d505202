"""Core of a recorder: takes events and rows, and writes logs to the disk.

`take` and `put` are called on any thread and never wait. `write` and `sync` run on one writing
thread, which may wait for the disk. Events are recorded once `sync` has brought them to the disk
and into the manifest; all other received events appear as a gap.
"""

from __future__ import annotations

import logging
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from gridstat.model.errors import GridStatError, StorageFailed
from gridstat.record.disk_watch import DiskWatch, check_disk
from gridstat.record.event_ring import EventRing
from gridstat.record.event_rows import EventRows, event_batch
from gridstat.record.gap_records import Gap, GapReason, GapRecords, gap_row
from gridstat.record.log_keeper import LogKeeper
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS, GAPS, KINDS, STREAMS
from gridstat.record.stream_registry import LEFT_OUT, StreamRegistry
from gridstat.record.waiting_rows import ACCOUNTS, WaitingRows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from gridstat.model.status import StatusVariable
    from gridstat.record.event_rows import Samples
    from gridstat.record.log_settings import RecorderSettings
    from gridstat.record.record_kinds import RecordKind
    from gridstat.record.waiting_rows import Waiting

GAPS_EVERY_NS: Final = 1_000_000_000
READ_RECORDS_MAX: Final = 65_536

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecorderFigures:
    """Figures of a recorder; `recorded` counts since the log began, all others since the start.

    `state` is recording, nearly full, full or failing, by the worst of its logs and the disk.
    """

    state: str
    complaint: str
    recorded: int
    taken: int
    waiting: int
    streams: int
    missing: dict[str, int]
    log_bytes: dict[str, int]
    free_bytes: int | None
    """Free space of the file system."""
    released_bytes: dict[str, int]
    dropped_rows: dict[str, int]
    """Rows of side logs dropped from memory while the disk did not take them."""
    failures: int


class Recorder:
    """Owner of all logs of a folder from construction to `close`."""

    def __init__(
        self, folder: Path, *, now_ns: Callable[[], int], settings: RecorderSettings
    ) -> None:
        self.woken = threading.Event()
        """Set when there is enough to write before the next sync."""
        self._folder = folder
        self._now_ns = now_ns
        self._settings = settings
        self._ring = EventRing(settings.ring_events_max, settings.ring_bytes_max, self.woken.set)
        self._disk = DiskWatch(folder, settings.free_bytes_alarm)
        self._gaps = GapRecords()
        self._lock = threading.Lock()
        self._gaps_due_ns = 0
        self._rows = WaitingRows(settings.rows_bytes_max)
        self._unsynced: tuple[int, int] | None = None
        self.taken = 0
        self._logs: dict[str, LogKeeper] = {}
        try:
            for kind in KINDS.values():
                bounds = settings.events if kind is EVENTS else settings.side
                keep_s = settings.account_s_max if kind in ACCOUNTS else None
                self._logs[kind.name] = LogKeeper(
                    folder, kind, now_ns=now_ns, settings=bounds, keep_s=keep_s
                )
            held_bytes = self._logs[EVENTS.name].log_bytes
            check_disk(folder, settings.events.log_bytes_max - held_bytes)
            self._disk.check()
            self._streams = StreamRegistry(read_rows(folder, STREAMS))
            self.last_received_ns = last_received_ns(folder)
        except BaseException:
            self._close_logs()
            raise

    # On any thread.

    def begin(self, variable: StatusVariable, every: int, subscription_id: int) -> int:
        """Begin a stream for this identifier under these terms, and return its number.

        Replayed variables were recorded when they were new, and are left out.
        """
        if variable.is_replay:
            return self._streams.leave_out(variable.variable_id)
        return self._streams.begin(variable, every, subscription_id, self._now_ns())

    def take(self, samples: Samples, options: bytes = b"") -> None:
        """Queue received events of any variables; never waits."""
        streams = self._streams.streams_of(samples["variable_id"])
        rows = EventRows(samples, streams, options)
        if self._streams.has_left_out:
            rows = rows.only(streams != LEFT_OUT)
            if not len(rows):
                return
        self.taken += len(rows)
        if not self._ring.put(rows):
            self.miss(GapReason.RING_FULL, *rows.received_ns(), len(rows))

    def put(self, kind: RecordKind, rows: list[dict[str, Any]]) -> None:
        """Queue records of another kind, within a bound."""
        self._rows.put(kind, rows)

    def miss(self, reason: GapReason, from_ns: int, to_ns: int, events: int | None) -> None:
        """Note events that came, or should have come, and are not recorded."""
        with self._lock:
            self._gaps.add(reason, from_ns, to_ns, events)

    def figures(self) -> RecorderFigures:
        events = self._logs[EVENTS.name]
        complaints = [keeper.complaint for keeper in self._logs.values() if keeper.complaint]
        is_nearly_full = any(keeper.is_nearly_full for keeper in self._logs.values())
        is_nearly_full = is_nearly_full or self._disk.is_short
        is_full = any(keeper.is_full for keeper in self._logs.values())
        state = "full" if is_full else "failing" if complaints else "recording"
        if state == "recording" and is_nearly_full:
            state = "nearly full"
        return RecorderFigures(
            state=state,
            complaint="; ".join(complaints),
            recorded=events.recorded,
            taken=self.taken,
            waiting=self._ring.events,
            streams=len(self._streams),
            missing={reason.value: count for reason, count in self._gaps.events.items()},
            log_bytes={name: keeper.log_bytes for name, keeper in self._logs.items()},
            free_bytes=self._disk.free_bytes,
            released_bytes={name: keeper.released_bytes for name, keeper in self._logs.items()},
            dropped_rows=dict(self._rows.dropped),
            failures=sum(keeper.failures for keeper in self._logs.values()),
        )

    # On the writing thread, or before there is one.

    def note_downtime(self) -> int | None:
        """Record a gap from the newest event until now, and return its end.

        Return None if nothing was ever recorded. Raise if the gap cannot be written: events that
        were recorded after it would hide the outage.
        """
        if self.last_received_ns is None:
            return None
        now_ns = self._now_ns()
        down = Gap(GapReason.DOWN, min(self.last_received_ns, now_ns), now_ns, None)
        if not self._write_safely(GAPS, [gap_row(down)]):
            raise StorageFailed(
                f"{self._folder} does not take the gap since the last event: "
                f"{self._logs[GAPS.name].complaint}",
                hint="free space, or record into another folder: --into",
            )
        return now_ns

    def write(self) -> None:
        """Pass waiting events to the operating system."""
        self.woken.clear()
        while (rows := self._ring.take()) is not None:
            self._append_events(rows)

    def sync(self) -> int:
        """Bring everything to the disk, and return the number of all recorded events."""
        self.write()
        events = self._logs[EVENTS.name]
        lost = events.sync()
        if lost and self._unsynced is not None:
            self.miss(GapReason.DISK, *self._unsynced, lost)
        self._unsynced = None
        self._write_rows()
        self._write_gaps()
        return events.recorded

    def tend(self) -> None:
        """Close old segments, release archived ones, and check the disk; called periodically."""
        for keeper in self._logs.values():
            keeper.tend()
        self._disk.check()

    def rotate(self) -> None:
        """Close all open segments, so that they can be copied away."""
        for keeper in self._logs.values():
            keeper.rotate()

    def close(self) -> None:
        """Write everything that waits, and release the logs."""
        self.sync()
        self._gaps_due_ns = 0
        self._write_gaps()
        self._close_logs()

    def _close_logs(self) -> None:
        for keeper in self._logs.values():
            keeper.close()

    def _append_events(self, rows: EventRows) -> None:
        events = self._logs[EVENTS.name]
        first_ns, last_ns = rows.received_ns()
        if not self._write_streams():
            self.miss(GapReason.DISK, first_ns, last_ns, len(rows))
            return
        taken = events.append(event_batch(rows))
        if taken:
            before = self._unsynced or (first_ns, last_ns)
            self._unsynced = min(before[0], first_ns), max(before[1], last_ns)
        if taken < len(rows):
            reason = GapReason.LOG_FULL if events.is_full else GapReason.DISK
            self.miss(reason, first_ns, last_ns, len(rows) - taken)

    def _write_streams(self) -> bool:
        """Write new streams, which must be on the disk before their first events."""
        rows = self._streams.unwritten()
        if not rows:
            return True
        written = self._write_safely(STREAMS, rows)
        self._streams.mark_written(written)
        return written == len(rows)

    def _write_rows(self) -> None:
        left: list[Waiting] = []
        refused = set()
        for each in self._rows.take():
            name = each.kind.name
            safe = 0 if name in refused else self._write_batch(each.kind, each.batch)
            if safe < each.batch.num_rows:
                left.append(each._replace(batch=each.batch.slice(safe)))
                refused.add(name)  # Later rows must not overtake it.
        self._rows.put_back(left)

    def _write_gaps(self) -> None:
        now_ns = self._now_ns()
        is_early = 0 <= self._gaps_due_ns - now_ns <= GAPS_EVERY_NS
        if is_early:
            return
        with self._lock:
            gaps = self._gaps.take()
        if not gaps:
            return
        safe = self._write_safely(GAPS, [gap_row(gap) for gap in gaps])
        self._gaps_due_ns = now_ns + GAPS_EVERY_NS
        with self._lock:
            self._gaps.put_back(gaps[safe:])

    def _write_safely(self, kind: RecordKind, rows: list[dict[str, Any]]) -> int:
        return self._write_batch(kind, pa.RecordBatch.from_pylist(rows, schema=kind.schema))

    def _write_batch(self, kind: RecordKind, batch: pa.RecordBatch) -> int:
        """Write a batch; return how many of its rows, from the first on, are on the disk."""
        keeper = self._logs[kind.name]
        taken = keeper.append(batch)
        return max(0, taken - keeper.sync())


def read_rows(folder: Path, kind: RecordKind) -> Iterator[dict[str, Any]]:
    """Yield all records of a small log, oldest first."""
    reader = LogReader(folder, kind)
    for piece in reader.slices(*reader.ends(), READ_RECORDS_MAX):
        for batch in reader.read(piece):
            yield from batch.to_pylist()


def last_received_ns(folder: Path) -> int | None:
    """Return when the newest recorded events arrived, None if there are none."""
    reader = LogReader(folder, EVENTS)
    start, end = reader.ends()
    try:
        pieces = reader.slices(reader.position_at(end - 1), end, READ_RECORDS_MAX) if end else []
        times = [
            int(batch.column("received_ns").to_numpy().max())
            for piece in pieces
            for batch in reader.read(piece)
        ]
    except GridStatError as error:  # Damaged or missing; recording continues nevertheless.
        log.warning("last_event_unreadable reason=%s", str(error))
        times = [extent.latest_ns for extent in reader.extents()[-1:]]
    return max(times, default=None) if end > start else None
