"""Events to send: arrays of identifiers, values and real, increasing time stamps.

A closed loop sends as many events as there is room for, stamped as if created since the last
chunk: the stamps lie evenly between the previous chunk and now. Only when the loop is faster than
the variables' period allows, or after a stall longer than a window, do they leave the clock, and
return to it as soon as possible: nothing is policed, nothing is a duplicate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.plan import EVENT_BYTES

if TYPE_CHECKING:
    import numpy.typing as npt

SLOTS_MIN, SLOTS_MAX = 2, 200
"""Fewest and most slots between two events of a variable, in a window of 256 slots."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events for one `send_many`."""

    ids: npt.NDArray[np.uint32]
    values: npt.NDArray[np.int64]
    created_ns: npt.NDArray[np.uint64]
    options: npt.NDArray[np.uint8] | None


class EventStream:
    """Endless cycle over the variables; a chunk is slices of arrays made at the start."""

    def __init__(
        self, first_id: int, count: int, *, event_bytes: int, chunk_max: int, period_ns: int
    ) -> None:
        assert event_bytes % EVENT_BYTES == 0
        self._count = count
        self._period_ns = period_ns
        self._chunk_max = chunk_max
        self._ids = (first_id + np.arange(count + chunk_max) % count).astype(np.uint32)
        self._ramp = np.arange(1, chunk_max + 1, dtype=np.float64)
        self._values = np.arange(chunk_max, dtype=np.int64)
        option_bytes = event_bytes - EVENT_BYTES
        self._options = np.zeros((chunk_max, option_bytes), np.uint8) if option_bytes else None
        self._next = 0
        self._created_ns_last = 0

    def take_at_once(self, events: int) -> Chunk:
        """Return the next events, all created now; each variable at most once."""
        assert events <= self._count
        return self._take(events, np.full(events, time.time_ns(), np.uint64))

    def take_since_last(self, events: int) -> Chunk:
        """Return the next events, created one after the other since the last chunk."""
        now_ns = time.time_ns()
        round_ns = self._period_ns * events / self._count
        last_ns = self._created_ns_last or now_ns - int(SLOTS_MIN * round_ns)
        advance_ns = min(max(now_ns - last_ns, SLOTS_MIN * round_ns), SLOTS_MAX * round_ns)
        created_ns = (self._ramp[:events] * (advance_ns / events)).astype(np.uint64)
        created_ns += np.uint64(last_ns)
        self._created_ns_last = int(created_ns[-1])
        return self._take(events, created_ns)

    def _take(self, events: int, created_ns: npt.NDArray[np.uint64]) -> Chunk:
        assert 0 < events <= self._chunk_max
        ids = self._ids[self._next : self._next + events]
        self._next = (self._next + events) % self._count
        options = None if self._options is None else self._options[:events]
        return Chunk(ids, self._values[:events], created_ns, options)
