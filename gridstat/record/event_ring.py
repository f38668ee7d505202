"""Between whoever delivers and whoever writes: batches of events, bounded by their number.

What finds no room is turned away and counted; the one who delivers never waits for the disk.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.record.event_rows import EventRows

if TYPE_CHECKING:
    from collections.abc import Callable

PRESSING_EVENTS: Final = 65_536
"""So many are a frame of their own, and need not wait for the next sync."""
FRAME_OPTION_BYTES_MAX: Final = 16 * 1024 * 1024


class EventRing:
    """Holds at most so many events, and bytes of events, that are not written yet."""

    def __init__(self, events_max: int, bytes_max: int, wake: Callable[[], object]) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._wake = wake
        self._parts: deque[EventRows] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.events = 0

    def put(self, rows: EventRows) -> bool:
        """Whether there was room for all of them; else none of them is in."""
        with self._lock:
            events, size = self.events + len(rows), self._bytes + rows.size_bytes
            if events > self._events_max or size > self._bytes_max:
                return False
            self._parts.append(rows)
            self.events, self._bytes = events, size
        if events >= PRESSING_EVENTS:
            self._wake()
        return True

    def take(self) -> EventRows | None:
        """The oldest ones, about as many as a frame holds; they are gone from here."""
        taken: list[EventRows] = []
        count = option_bytes = 0
        with self._lock:
            while self._parts:
                count += len(self._parts[0])
                option_bytes += len(self._parts[0].options)
                is_much = count > PRESSING_EVENTS or option_bytes > FRAME_OPTION_BYTES_MAX
                if taken and is_much:
                    break
                taken.append(self._parts.popleft())
            self.events -= sum(len(rows) for rows in taken)
            self._bytes -= sum(rows.size_bytes for rows in taken)
        if len(taken) <= 1:
            return taken[0] if taken else None
        return EventRows(
            np.concatenate([rows.samples for rows in taken]),
            np.concatenate([rows.streams for rows in taken]),
            b"".join(rows.options for rows in taken),
        )
