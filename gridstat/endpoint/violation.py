"""QoS violations: late and missing events of a contract, each reported once (S0 A25).

The next event is expected one interval after the last one, or after the contract began, and is
missing when the latency has passed as well. All times are of the steady clock, so setting a wall
clock makes nothing late; a publisher's clock that is set is followed.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.slot_clock import ClockSetbackDetector, SlotClock
from gridstat.model.rate_law import Period, slot_of
from gridstat.model.short_text import short_repr

if TYPE_CHECKING:
    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.slot_clock import StartTime

MISSED_MAX: Final = 256
"""Slots reported at once after a long pause of this process; older ones are only counted."""


class Reason(Enum):
    """Kind of a violation."""

    LATE = "late"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Violation:
    """One event that broke the contract; `delivery` is there if it came after all."""

    name: str
    slot: int
    expected_ns: int
    reason: Reason
    delivery: Delivery | None = None

    def __repr__(self) -> str:
        due = f"expected at {self.expected_ns}"
        late = "" if self.delivery is None else f"latency {self.delivery.latency_us:.0f} µs"
        return short_repr(self, self.name, self.reason.value, f"slot {self.slot}", due, late)


@dataclass(frozen=True, slots=True)
class Missed:
    """A due slot whose time has passed, and the stamp that its event would bear."""

    slot: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of a contract in the active modes: every n-th slot within a latency."""

    period: Period
    phase_ns: int
    every: int
    latency_ns: int


@dataclass(slots=True)
class _Anchor:
    """The newest event: its slot, its stamp, when that was on the steady clock, and its arrival."""

    slot: int
    created_ns: int
    at_ns: int
    arrived_ns: int


class SlotWatch:
    """Judges every due slot after the start once: seen in time, or missed."""

    def __init__(self, terms: Terms, begin: StartTime) -> None:
        self._seen: set[int] = set()
        self.skipped = 0
        self.restart(terms, begin)

    @property
    def next_due_ns(self) -> int:
        """Time at which the next slot is judged."""
        return self._deadline_ns(self._next_slot)

    def saw(self, created_ns: int, arrived_ns: int, age_ns: int) -> bool:
        """Note an event and its age at arrival; return whether its slot is not judged yet."""
        terms = self._terms
        slot = slot_of(created_ns, terms.period, terms.phase_ns)
        found = _Anchor(slot, created_ns, arrived_ns - max(0, age_ns), arrived_ns)
        if self._is_restarted(found):
            self._clock.restart(slot, arrived_ns)
            self._anchor = found
            self._next_slot = (slot // terms.every + 1) * terms.every
            self._seen.clear()
            return True
        if slot > self._anchor.slot or not self._clock.is_set:
            self._note_arrival(found)
        if slot < self._next_slot:
            return False
        if slot == self._next_slot and not self._seen:
            self._next_slot += terms.every  # The ordinary case: one after the other.
        elif slot % terms.every == 0 and slot - self._next_slot <= MISSED_MAX * terms.every:
            self._seen.add(slot)
        return True

    def overdue(self, now_ns: int) -> list[Missed]:
        """Return the slots whose time has passed without an event, oldest first."""
        self._skip(now_ns)
        missed = []
        while self._deadline_ns(self._next_slot) <= now_ns:
            if self._next_slot in self._seen:
                self._seen.discard(self._next_slot)
            else:
                missed.append(Missed(self._next_slot, self._expected_ns(self._next_slot)))
            self._next_slot += self._terms.every
        return missed

    def restart(self, terms: Terms, begin: StartTime) -> None:
        """Restart with other terms: the first slot is due one interval after they began."""
        slot = slot_of(begin.stamp_ns, terms.period, terms.phase_ns)
        self._terms = terms
        self._clock = SlotClock(terms.period)
        self._setback = ClockSetbackDetector()
        self._anchor = _Anchor(slot, begin.stamp_ns, begin.at_ns, begin.at_ns)
        self._next_slot = (slot // terms.every + 1) * terms.every
        self._seen.clear()

    def renew(self, terms: Terms, begin: StartTime) -> None:
        """Set other terms, but keep the estimate of the publisher's slots if these stay the
        same."""
        before, anchor, clock, due = self._terms, self._anchor, self._clock, self._next_slot
        self.restart(terms, begin)
        if clock.is_set and (before.period, before.phase_ns) == (terms.period, terms.phase_ns):
            self._anchor, self._clock = anchor, clock
            if terms.every % before.every:  # Not slower: more is due than before, from now on.
                due = max(due, clock.newest_due(begin.at_ns) + 1)
            self._next_slot = -(-due // terms.every) * terms.every

    def _is_restarted(self, found: _Anchor) -> bool:
        """Return whether the publisher's slots differ from the estimate: its clock was set, or it
        is the first event, and our own clock does not agree with its stamp."""
        if not self._clock.is_set:
            ours_ns = self._anchor.at_ns + self._distance_ns(found.slot)
            allowed_ns = self._terms.latency_ns + self._terms.period.period_ns
            return abs(found.at_ns - ours_ns) > allowed_ns
        if self._clock.is_ahead(found.slot, found.arrived_ns, self._terms.latency_ns):
            return True
        return found.slot <= self._anchor.slot and self._setback.is_set_back(
            self._clock.slot_ns(found.slot), found.arrived_ns, self._anchor.arrived_ns
        )

    def _note_arrival(self, found: _Anchor) -> None:
        if self._clock.is_set:
            self._clock.note_arrival(found.slot, found.arrived_ns)
        else:
            self._clock.restart(found.slot, found.arrived_ns)
        self._anchor = found

    def _skip(self, now_ns: int) -> None:
        """Judge only the newest slots after a very long pause."""
        behind_ns = now_ns - self._deadline_ns(self._next_slot)
        step_ns = self._terms.period.period_ns * self._terms.every
        too_many = int(behind_ns // step_ns) - MISSED_MAX
        if too_many > 0:
            self._next_slot += too_many * self._terms.every
            self.skipped += too_many
            self._seen = {slot for slot in self._seen if slot >= self._next_slot}

    def _deadline_ns(self, slot: int) -> int:
        return self._anchor.at_ns + self._distance_ns(slot) + self._terms.latency_ns

    def _expected_ns(self, slot: int) -> int:
        return self._anchor.created_ns + self._distance_ns(slot)

    def _distance_ns(self, slot: int) -> int:
        return int((slot - self._anchor.slot) * self._terms.period.period_ns)
