"""Events to send: arrays of identifiers, values and real, increasing time stamps.

Two events of one variable always lie at least one period apart, however fast the loop runs, and
after a stall of the machine the stamps of a closed loop catch up with the clock in steps that the
window allows: nothing is policed, nothing is a duplicate.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.plan import EVENT_BYTES

STALL_SLOTS_MAX = 100


@dataclass(frozen=True, slots=True)
class Chunk:
    """Events for one `send_many`."""

    ids: npt.NDArray[np.uint32]
    values: npt.NDArray[np.int64]
    created_ns: npt.NDArray[np.uint64]
    options: npt.NDArray[np.uint8] | None


class EventStream:
    """Goes round the variables for ever; a chunk is slices of arrays made at the start."""

    def __init__(
        self, first_id: int, count: int, *, event_bytes: int, chunk_max: int, period_ns: int
    ) -> None:
        assert event_bytes % EVENT_BYTES == 0
        order = np.arange(count + chunk_max)
        self._count = count
        self._period_ns = period_ns
        self._chunk_max = chunk_max
        self._ids = (first_id + order % count).astype(np.uint32)
        self._steps_ns = (order // count * period_ns).astype(np.uint64)
        self._values = np.arange(chunk_max, dtype=np.int64)
        option_bytes = event_bytes - EVENT_BYTES
        self._options = np.zeros((chunk_max, option_bytes), np.uint8) if option_bytes else None
        self._next = 0
        self._created_ns_last = 0

    def take(self, events: int, *, is_catching_up: bool = False) -> Chunk:
        """The next events, stamped now, or a period after the last if that is later.

        While catching up, stamps stay less than a window behind the last, whatever the clock says.
        """
        assert 0 < events <= self._chunk_max
        part = slice(self._next, self._next + events)
        # A chunk that is only a part of the round has to bring only that part of a period; the
        # closed loop's chunks are either all smaller than the round, or all larger.
        step_ns = -(-self._period_ns * min(events, self._count) // self._count)
        base_ns = max(time.time_ns(), self._created_ns_last + step_ns)
        if is_catching_up and self._created_ns_last:
            base_ns = min(base_ns, self._created_ns_last + STALL_SLOTS_MAX * step_ns)
        created_ns = self._steps_ns[part] - self._steps_ns[part.start] + np.uint64(base_ns)
        self._created_ns_last = int(created_ns[-1])
        self._next = (self._next + events) % self._count
        options = None if self._options is None else self._options[:events]
        return Chunk(self._ids[part], self._values[:events], created_ns, options)
