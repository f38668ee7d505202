"""Queue of side-log records that wait for the disk, in order of arrival.

They wait as Arrow batches, whose size is known, within a bound in bytes. Above it, the oldest
accounts are dropped first: their counts never decrease, so a later reading replaces them.
"""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from gridstat.record.record_kinds import COUNTERS, LEDGERS

if TYPE_CHECKING:
    from gridstat.record.record_kinds import RecordKind

ACCOUNTS: Final = (LEDGERS, COUNTERS)
"""Kinds with readings of counts: many, soon outdated, and summarised in the audit's table. Readers
need the other side logs to understand any event, and each of their records exists once."""

log = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """Records of one kind that came together, and their size in memory."""

    kind: RecordKind
    batch: pa.RecordBatch
    size_bytes: int


class WaitingRows:
    """Queue for any thread, bounded in bytes; `dropped` counts dropped rows by log name."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: list[Waiting] = []
        self._lock = threading.Lock()
        self._is_dropping = False
        self.dropped = dict.fromkeys((kind.name for kind in ACCOUNTS), 0)

    def put(self, kind: RecordKind, rows: list[dict[str, Any]]) -> None:
        """Add the newest rows."""
        batch = pa.RecordBatch.from_pylist(rows, schema=kind.schema)
        with self._lock:
            self._waiting.append(Waiting(kind, batch, batch.nbytes))
            self._drop()

    def take(self) -> list[Waiting]:
        """Remove and return all batches, the oldest first."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def put_back(self, waiting: list[Waiting]) -> None:
        """Add batches again that the disk did not take, before all newer ones."""
        with self._lock:
            self._waiting = waiting + self._waiting
            self._is_dropping = self._is_dropping and bool(waiting)
            self._drop()

    def _drop(self) -> None:
        over_bytes = sum(each.size_bytes for each in self._waiting) - self._bytes_max
        if over_bytes <= 0:
            return
        dropped = set()
        # Accounts first; the order among them stays.
        for number, each in sorted(
            enumerate(self._waiting), key=lambda one: one[1].kind not in ACCOUNTS
        ):
            if over_bytes <= 0:
                break
            over_bytes -= each.size_bytes
            dropped.add(number)
            name = each.kind.name
            self.dropped[name] = self.dropped.get(name, 0) + each.batch.num_rows
        self._waiting = [each for number, each in enumerate(self._waiting) if number not in dropped]
        if not self._is_dropping:
            log.warning("rows_dropped bytes_max=%d so_far=%s", self._bytes_max, self.dropped)
        self._is_dropping = True
