"""Records of the side logs that wait for the disk, in the order in which they came.

They wait as Arrow batches, whose size is known, within a bound in bytes. Beyond it the oldest
accounts are dropped first: their counts never fall, so a later one makes up for them.
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
"""Readings of counts: many, soon outdated, and summed up in the audit's table. The other side logs
say what readers need to understand any event, and each of their records is there once."""

log = logging.getLogger(__name__)


class Waiting(NamedTuple):
    """Records of one kind that came together, and the memory that they take."""

    kind: RecordKind
    batch: pa.RecordBatch
    size_bytes: int


class WaitingRows:
    """On any thread; holds at most so many bytes, and counts what had to go by the log's name."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: list[Waiting] = []
        self._lock = threading.Lock()
        self._is_dropping = False
        self.dropped = dict.fromkeys((kind.name for kind in ACCOUNTS), 0)

    def put(self, kind: RecordKind, rows: list[dict[str, Any]]) -> None:
        """These are the newest."""
        batch = pa.RecordBatch.from_pylist(rows, schema=kind.schema)
        with self._lock:
            self._waiting.append(Waiting(kind, batch, batch.nbytes))
            self._drop()

    def take(self) -> list[Waiting]:
        """All of them, the oldest first; they are gone from here."""
        with self._lock:
            taken, self._waiting = self._waiting, []
        return taken

    def put_back(self, waiting: list[Waiting]) -> None:
        """The disk did not take these; they are older than what came since."""
        with self._lock:
            self._waiting = waiting + self._waiting
            self._is_dropping = self._is_dropping and bool(waiting)
            self._drop()

    def _drop(self) -> None:
        over_bytes = sum(each.size_bytes for each in self._waiting) - self._bytes_max
        if over_bytes <= 0:
            return
        gone = set()
        # Accounts first; the order among them stays.
        for number, each in sorted(
            enumerate(self._waiting), key=lambda one: one[1].kind not in ACCOUNTS
        ):
            if over_bytes <= 0:
                break
            over_bytes -= each.size_bytes
            gone.add(number)
            name = each.kind.name
            self.dropped[name] = self.dropped.get(name, 0) + each.batch.num_rows
        self._waiting = [each for number, each in enumerate(self._waiting) if number not in gone]
        if not self._is_dropping:
            log.warning("rows_dropped bytes_max=%d so_far=%s", self._bytes_max, self.dropped)
        self._is_dropping = True
