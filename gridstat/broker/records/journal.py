"""Durable log of a broker's operations: one thread with group commit, over any store of rows.

All entries that wait when the thread is free go into one transaction with one fsync, so a thousand
requests a second cost a few hundred fsyncs, and none of them blocks the event loop. Rows are
chained by checksums: the next start finds and names a flipped bit or a missing row.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.journal_rows import BEGINNING, JournalRow, chained
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.model.errors import StorageFailed
from gridstat.net.process_end import end_at_once

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.records.journal_rows import Store

EPOCH_BITS: Final = 32
"""A token is an epoch and a number; after a failure only a later epoch is accepted."""
TIMINGS_MAX: Final = 4_096
SLOW_NS: Final = 2_000_000_000
"""A commit that takes longer than this is reported as unhealthy."""
EXIT_CODE: Final = 70
"""Exit code after an unexpected failure of the journal: EX_SOFTWARE of sysexits."""

log = logging.getLogger(__name__)


def end_process() -> None:
    """End the process at once, since nothing may be sent that may not be durable."""
    end_at_once(EXIT_CODE, lambda: log.critical("journal_failed", exc_info=True))


@dataclass(frozen=True, slots=True)
class _Entry:
    """Operations that become durable together, and the future that waits for them."""

    token: int
    operations: tuple[bytes, ...]
    future: asyncio.Future[None]


class Journal:
    """Operations whose `persist` future is done survive a kill and a power cut.

    After a failure every write of the same epoch fails too, in order, until the machine has handled
    the failure and begins a new epoch; so no durable operation depends on a lost one. `died` is
    called when the thread cannot go on; it is not meant to return.
    """

    def __init__(
        self,
        store: Store,
        *,
        clock_ns: Callable[[], int] = time.perf_counter_ns,
        died: Callable[[], None] = end_process,
    ) -> None:
        self._store = store
        self._died = died
        self._clock_ns = clock_ns
        self._condition = threading.Condition()
        self._queue: deque[_Entry] = deque()
        self._gathered: list[_Entry] = []
        self._is_closing = False
        self._failed_epoch = -1
        self._commit_ns: deque[int] = deque(maxlen=TIMINGS_MAX)
        self._commit_count = 0
        self._operation_count = 0
        self._failure_count = 0
        self._trouble = ""
        self._writing_since_ns: int | None = None
        self._row_count = 0
        self._last = BEGINNING
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def claim(self) -> float:
        """Try to become the only writer; return 0 on success, else the seconds to wait."""
        return self._store.claim()

    def load(self) -> list[bytes]:
        """Return the operations that were not loaded before, oldest first; at first all of them.

        If the first one is a mark, a snapshot has replaced all that was loaded before. Raises
        `StorageFailed` on a damaged or missing row.
        """
        rows = self._store.read(self._last)
        if rows and rows[0].operation == SNAPSHOT_MARK:
            self._row_count = 0
        self._row_count += len(rows)
        if rows:
            self._last = rows[-1]._replace(operation=b"")
        return [row.operation for row in rows]

    def interrupt(self) -> None:
        """Make a `claim` or `load` that runs in another thread raise `LinkDown` soon."""
        self._store.interrupt()

    def persist(self, token: int, operations: tuple[bytes, ...]) -> asyncio.Future[None]:
        """Return a future that is done once all operations are durable.

        The future fails with `StorageFailed` if none of them is.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        # The thread is woken after this iteration of the loop, whose entries share one commit.
        if not self._gathered:
            self._loop = loop
            loop.call_soon(self._queue_gathered)
        self._gathered.append(_Entry(token, operations, future))
        return future

    def _queue_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        with self._condition:
            if self._is_closing:
                _resolve([entry.future for entry in gathered], f"journal {self._store} is closed")
                return
            self._queue.extend(gathered)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()
            self._condition.notify()

    def close(self) -> None:
        """Write the queued operations, end the thread and close the store."""
        if self._gathered:
            self._queue_gathered()
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join()
        self._store.close()

    def complaint(self) -> str:
        """Return why the latest operations are not durable; empty if they are or soon will be."""
        return self._trouble or self._store.complaint() or self._slow_complaint()

    def _slow_complaint(self) -> str:
        """Return a complaint about a write that takes too long: a stuck disk reports no error."""
        since_ns = self._writing_since_ns
        if since_ns is None or self._clock_ns() - since_ns < SLOW_NS:
            return ""
        return f"the journal has not answered for {(self._clock_ns() - since_ns) // 10**9} s"

    def figures(self) -> dict[str, int | float]:
        """Return figures for people and experiments; times are of whole commits, fsync included."""
        timings = sorted(self._commit_ns)
        return {
            "commits": self._commit_count,
            "operations": self._operation_count,
            "rows": self._row_count,
            "failures": self._failure_count,
            "head_failures": 0,
            "fsync_ms_p50": _percentile(timings, 0.50) / 1e6,
            "fsync_ms_p99": _percentile(timings, 0.99) / 1e6,
            **self._store.figures(),
        }

    # The thread.

    def _run(self) -> None:
        batch: list[_Entry] = []
        try:
            while batch := self._next_batch():
                self._write(batch)
        except Exception:
            # It is unknown which part of the batch is durable, so the process ends and a new one
            # reads the journal. If the process goes on (in tests), the waiting futures must fail.
            self._died()
            with self._condition:
                self._is_closing = True
                batch += self._queue
                self._queue.clear()
            self._answer(batch, "its thread has failed")

    def _next_batch(self) -> list[_Entry]:
        """Wait for entries and return all of them; empty if the journal is closing."""
        with self._condition:
            while not self._queue and not self._is_closing:
                self._condition.wait()
            batch = list(self._queue)
            self._queue.clear()
            return batch

    def _write(self, batch: list[_Entry]) -> None:
        # Entries of a failed epoch build on operations that were lost, so they fail too.
        stale = [entry for entry in batch if entry.token >> EPOCH_BITS <= self._failed_epoch]
        fresh = [entry for entry in batch if entry.token >> EPOCH_BITS > self._failed_epoch]
        if stale:
            self._answer(stale, "an earlier operation could not be made durable")
        if not fresh:
            return
        self._writing_since_ns = started_ns = self._clock_ns()
        try:
            self._commit(fresh)
        except StorageFailed as error:
            self._failed_epoch = max(entry.token >> EPOCH_BITS for entry in fresh)
            self._failure_count += 1
            self._trouble = f"the journal cannot be written: {error.args[0]}"
            self._answer(fresh, str(error.args[0]))
            return
        finally:
            self._writing_since_ns = None
        self._trouble = ""
        self._commit_ns.append(self._clock_ns() - started_ns)
        self._commit_count += 1
        self._operation_count += sum(len(entry.operations) for entry in fresh)
        self._answer(fresh, None)

    def _commit(self, batch: list[_Entry]) -> None:
        last, row_count, is_whole = self._last, self._row_count, False
        rows: list[JournalRow] = []
        for entry in batch:
            if entry.operations and entry.operations[0] == SNAPSHOT_MARK:
                # A snapshot replaces all rows, also those before it in this batch.
                last, row_count, is_whole = last._replace(checksum=b""), 0, True
                rows.clear()
            for operation in entry.operations:
                number = last.number + 1
                last = JournalRow(number, operation, chained(last.checksum, number, operation))
                rows.append(last)
        if rows:
            self._store.write(rows, is_whole=is_whole)
        self._last, self._row_count = last._replace(operation=b""), row_count + len(rows)

    def _answer(self, batch: list[_Entry], reason: str | None) -> None:
        assert self._loop is not None
        futures = [entry.future for entry in batch]
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(_resolve, futures, reason)


def _resolve(futures: list[asyncio.Future[None]], reason: str | None) -> None:
    for future in futures:
        if future.done():  # The waiting task was cancelled; the operation counts all the same.
            continue
        if reason is None:
            future.set_result(None)
        else:
            future.set_exception(StorageFailed(f"the journal cannot be written: {reason}"))


def _percentile(timings: list[int], share: float) -> int:
    return timings[min(len(timings) - 1, int(share * len(timings)))] if timings else 0
