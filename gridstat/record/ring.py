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


class EventRing:
    """Holds at most `events_max` events that are not written yet."""

    def __init__(self, events_max: int, wake: Callable[[], object]) -> None:
        self._events_max = events_max
        self._wake = wake
        self._parts: deque[EventRows] = deque()
        self._lock = threading.Lock()
        self.events = 0

    def put(self, rows: EventRows) -> bool:
        """Whether there was room for all of them; else none of them is in."""
        with self._lock:
            if self.events + len(rows) > self._events_max:
                return False
            self._parts.append(rows)
            self.events += len(rows)
            is_pressing = self.events >= PRESSING_EVENTS
        if is_pressing:
            self._wake()
        return True

    def take(self) -> EventRows | None:
        """The oldest ones, about as many as a frame holds; they are gone from here."""
        taken: list[EventRows] = []
        count = 0
        with self._lock:
            while self._parts and (not taken or count + len(self._parts[0]) <= PRESSING_EVENTS):
                taken.append(self._parts.popleft())
                count += len(taken[-1])
            self.events -= count
        if len(taken) <= 1:
            return taken[0] if taken else None
        return EventRows(
            np.concatenate([rows.samples for rows in taken]),
            np.concatenate([rows.streams for rows in taken]),
            b"".join(rows.options for rows in taken),
        )
