"""Bounded queue of event batches between the receiving threads and the writing thread.

A batch that does not fit is rejected and counted by the caller, which never waits for the disk.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np

from gridstat.record.event_rows import EventRows

if TYPE_CHECKING:
    from collections.abc import Callable

FRAME_EVENTS: Final = 65_536
"""Number of waiting events that fill a frame and wake the writer before the next sync."""
FRAME_OPTION_BYTES_MAX: Final = 16 * 1024 * 1024


class EventRing:
    """Events that are not written yet, bounded in number and in bytes."""

    def __init__(self, events_max: int, bytes_max: int, wake: Callable[[], object]) -> None:
        self._events_max = events_max
        self._bytes_max = bytes_max
        self._wake = wake
        self._parts: deque[EventRows] = deque()
        self._bytes = 0
        self._lock = threading.Lock()
        self.events = 0

    def put(self, rows: EventRows) -> bool:
        """Add all rows and return True, or return False if they do not all fit."""
        with self._lock:
            events, size = self.events + len(rows), self._bytes + rows.size_bytes
            if events > self._events_max or size > self._bytes_max:
                return False
            self._parts.append(rows)
            self.events, self._bytes = events, size
        if events >= FRAME_EVENTS:
            self._wake()
        return True

    def take(self) -> EventRows | None:
        """Remove and return the oldest events, about as many as a frame holds."""
        taken: list[EventRows] = []
        count = option_bytes = 0
        with self._lock:
            while self._parts:
                count += len(self._parts[0])
                option_bytes += len(self._parts[0].options)
                is_much = count > FRAME_EVENTS or option_bytes > FRAME_OPTION_BYTES_MAX
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
