"""Counters of closed channels, at which those go on that are opened again.

Ids of end-points' channels never come again, so only the channels closed last are remembered. A
channel that was forgotten begins as one that was never open: whoever keeps a key over a closing
compares `first_counter` with the last counter before it.
"""

from __future__ import annotations

from typing import Final

CLOSED_MAX: Final = 65_536
"""Closed channels that are remembered."""


class ClosedCounters:
    """Last counter of each channel, the one closed longest ago first."""

    def __init__(self, closed_max: int = CLOSED_MAX) -> None:
        self._closed_max = closed_max
        self._counters: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._counters)

    def of(self, channel_id: int) -> int:
        """Return the last counter of a closed channel; 0: it was not open, or is forgotten."""
        return self._counters.get(channel_id, 0)

    def opened(self, channel_id: int) -> None:
        """Forget a channel that is open: its counter is in the core."""
        self._counters.pop(channel_id, None)

    def closed(self, channel_id: int, counter: int) -> None:
        """Remember the last counter of a channel; beyond the bound, forget the oldest."""
        self._counters.pop(channel_id, None)
        self._counters[channel_id] = counter
        if len(self._counters) > self._closed_max:
            del self._counters[next(iter(self._counters))]
