"""When a publication's slots are due to arrive, on the steady clock.

Learned from arrivals alone, so that no wall clock that is set, ours or the publisher's, makes a
slot late or lost. Only the distance of slots is taken from stamps; the passing of time is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period

QUIET_NS: Final = 1_000_000_000
"""So long nothing newer has come when an older stamp may be a clock that was set back; the same as
`GS_QUIET_NS` in the core."""
DRIFT_SHIFT: Final = 10
"""The fastest arrival known is trusted less by a 1,024th of the time since: clocks drift."""
AHEAD_NS: Final = 100_000_000
"""Further ahead of its time than this, and than its latency, only a set clock can be."""


@dataclass(frozen=True, slots=True)
class StartTime:
    """From when on something is expected: on the steady clock, and as a stamp.

    The stamp is exact if the publisher was told it too; else it is our own clock's guess.
    """

    at_ns: int
    stamp_ns: int
    is_exact: bool = False


class SlotClock:
    """A slot arrives no earlier than the fastest one did; empty until the first is known."""

    def __init__(self, period: Period) -> None:
        self._ns, self._slots = period.seconds * NS_PER_S, period.per_seconds
        self._offset_ns = 0
        self._noted_ns = 0
        self.is_set = False
        """Whether an event has come; a guess does not tell whether others are ahead of it."""

    def guess(self, slot: int, at_ns: int) -> None:
        """Until an event comes this slot is taken to be due then."""
        self._offset_ns = at_ns - self.slot_ns(slot)

    def restart(self, slot: int, arrived_ns: int) -> None:
        """Believe this event and none before."""
        self.guess(slot, arrived_ns)
        self._noted_ns = arrived_ns
        self.is_set = True

    def note_arrival(self, slot: int, arrived_ns: int) -> None:
        """One more event has come."""
        trusted_ns = self._offset_ns + (max(0, arrived_ns - self._noted_ns) >> DRIFT_SHIFT)
        self._offset_ns = min(trusted_ns, arrived_ns - slot * self._ns // self._slots)
        self._noted_ns = arrived_ns

    def slot_ns(self, slot: int) -> int:
        """A slot's time since slot 0."""
        return slot * self._ns // self._slots

    def due_ns(self, slot: int) -> int:
        """When a slot's event arrives if nothing holds it up."""
        return self._offset_ns + slot * self._ns // self._slots

    def newest_due(self, at_ns: int) -> int:
        """The newest slot that was due to arrive by then."""
        return (at_ns - self._offset_ns) * self._slots // self._ns

    def is_ahead(self, slot: int, arrived_ns: int, latency_ns: int) -> bool:
        """Whether it came so long before its time that the publisher's clock must have been set."""
        return self.is_set and arrived_ns + latency_ns + AHEAD_NS < self.due_ns(slot)


class ClockSetbackDetector:
    """Tells a publisher's clock that was set back from a straggler.

    Two events in a row that are older than the newest, as far apart as their stamps say, and
    nothing newer for a while: that is a stream. A burst of stragglers comes faster.
    """

    def __init__(self) -> None:
        self._stamp_ns: int | None = None
        self._arrived_ns = 0

    def is_set_back(self, stamp_ns: int, arrived_ns: int, newest_arrived_ns: int) -> bool:
        """An event older than the newest has come; whether its clock was set back."""
        before_ns, came_ns = self._stamp_ns, self._arrived_ns
        self._stamp_ns, self._arrived_ns = stamp_ns, arrived_ns
        return (
            before_ns is not None
            and stamp_ns > before_ns
            and arrived_ns - newest_arrived_ns >= QUIET_NS
            and 2 * (arrived_ns - came_ns) >= stamp_ns - before_ns
        )
