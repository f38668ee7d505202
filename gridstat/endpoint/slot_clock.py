"""Expected arrival times of a publication's slots, on the steady clock.

Learned from arrivals alone, so that setting a wall clock, ours or the publisher's, makes no slot
late or lost. Only the distance of slots is taken from stamps, never the passing of time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

QUIET_NS: Final = 1_000_000_000
"""Silence after which an older stamp may be a clock that was set back; the same as `GS_QUIET_NS` in
the core."""
DRIFT_SHIFT: Final = 10
"""Shift for the drift of clocks: the fastest arrival ages by a 1,024th of the time since."""
AHEAD_NS: Final = 100_000_000
"""Bound on an early arrival, in addition to its latency; earlier ones mean that a clock was set."""


@dataclass(frozen=True, slots=True)
class StartTime:
    """Start of an expectation, on the steady clock and as a stamp.

    The stamp is exact if the publisher got it too; else it is an estimate by our own clock.
    """

    at_ns: int
    stamp_ns: int
    is_exact: bool = False


class SlotClock:
    """Estimates arrivals by the fastest one so far; unset until the first arrival."""

    def __init__(self, period: Period) -> None:
        self._ns, self._slots = period.seconds * NS_PER_S, period.per_seconds
        self._offset_ns = 0
        self._noted_ns = 0
        self.is_set = False
        """True if an event has come; before, the offset is only a guess."""

    def guess(self, slot: int, at_ns: int) -> None:
        """Assume, until an event comes, that this slot is due then."""
        self._offset_ns = at_ns - self.slot_ns(slot)

    def restart(self, slot: int, arrived_ns: int) -> None:
        """Restart the estimate with this event."""
        self.guess(slot, arrived_ns)
        self._noted_ns = arrived_ns
        self.is_set = True

    def note_arrival(self, slot: int, arrived_ns: int) -> None:
        """Note one more event."""
        trusted_ns = self._offset_ns + (max(0, arrived_ns - self._noted_ns) >> DRIFT_SHIFT)
        self._offset_ns = min(trusted_ns, arrived_ns - slot * self._ns // self._slots)
        self._noted_ns = arrived_ns

    def slot_ns(self, slot: int) -> int:
        """Return a slot's time since slot 0."""
        return slot * self._ns // self._slots

    def due_ns(self, slot: int) -> int:
        """Return when a slot's event arrives if nothing delays it."""
        return self._offset_ns + slot * self._ns // self._slots

    def newest_due(self, at_ns: int) -> int:
        """Return the newest slot that was due to arrive by then."""
        return (at_ns - self._offset_ns) * self._slots // self._ns

    def is_ahead(self, slot: int, arrived_ns: int, latency_ns: int) -> bool:
        """Return whether the event came so early that the publisher's clock must have been set."""
        return self.is_set and arrived_ns + latency_ns + AHEAD_NS < self.due_ns(slot)


class ClockSetbackDetector:
    """Distinguishes a publisher's clock that was set back from late events.

    Two events in a row that are older than the newest, as far apart as their stamps say, and no
    newer one for a while: that is a stream. A burst of late events comes faster.
    """

    def __init__(self) -> None:
        self._stamp_ns: int | None = None
        self._arrived_ns = 0

    def is_set_back(self, stamp_ns: int, arrived_ns: int, newest_arrived_ns: int) -> bool:
        """Note an event older than the newest; return whether its clock was set back."""
        before_ns, came_ns = self._stamp_ns, self._arrived_ns
        self._stamp_ns, self._arrived_ns = stamp_ns, arrived_ns
        return (
            before_ns is not None
            and stamp_ns > before_ns
            and arrived_ns - newest_arrived_ns >= QUIET_NS
            and 2 * (arrived_ns - came_ns) >= stamp_ns - before_ns
        )
