"""QoS violations: which event of a contract is late or missing, each told once (S0 A25).

The next event is expected one interval after the last one, and missing when the latency has
passed as well. Nothing is expected before the first event has come. All instants are of the
steady clock, so a wall clock that is set makes nothing late.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from gridstat.model.rate_law import Period, slot_of

if TYPE_CHECKING:
    from gridstat.endpoint.delivery import Delivery

MISSED_MAX: Final = 256
"""Slots reported at once after a long pause of this process; older ones are only counted."""


class Reason(Enum):
    """What is wrong with an event."""

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


@dataclass(frozen=True, slots=True)
class Missed:
    """A due slot whose time has passed, and the stamp that its event would bear."""

    slot: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class Terms:
    """What a contract promises in the active modes: every n-th slot within a latency."""

    period: Period
    phase_ns: int
    every: int
    latency_ns: int


@dataclass(slots=True)
class _Anchor:
    """The newest event: its slot, its stamp, and when that was on the steady clock."""

    slot: int
    created_ns: int
    at_ns: int


class SlotWatch:
    """Every due slot behind the first event is judged once: seen in time, or missed."""

    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._anchor: _Anchor | None = None
        self._next_slot = 0
        self._seen: set[int] = set()
        self.skipped = 0

    @property
    def next_due_ns(self) -> int | None:
        """When the next slot is to be judged; None before the first event."""
        return None if self._anchor is None else self._deadline_ns(self._next_slot)

    def saw(self, created_ns: int, arrived_ns: int, age_ns: int) -> bool:
        """An event has come, so old at its arrival; whether its slot is still unjudged."""
        terms = self._terms
        slot = slot_of(created_ns, terms.period, terms.phase_ns)
        if self._anchor is None:
            self._anchor = _Anchor(slot, created_ns, arrived_ns - max(0, age_ns))
            self._next_slot = (slot // terms.every + 1) * terms.every
            return True
        if slot > self._anchor.slot:
            self._anchor = _Anchor(slot, created_ns, arrived_ns - max(0, age_ns))
        if slot < self._next_slot:
            return False
        if slot == self._next_slot and not self._seen:
            self._next_slot += terms.every  # The ordinary case: one after the other.
        elif slot % terms.every == 0 and slot - self._next_slot <= MISSED_MAX * terms.every:
            self._seen.add(slot)
        return True

    def overdue(self, now_ns: int) -> list[Missed]:
        """The slots whose time has passed and that nobody saw, oldest first."""
        if self._anchor is None:
            return []
        self._skip(now_ns)
        missed = []
        while self._deadline_ns(self._next_slot) <= now_ns:
            if self._next_slot in self._seen:
                self._seen.discard(self._next_slot)
            else:
                missed.append(Missed(self._next_slot, self._expected_ns(self._next_slot)))
            self._next_slot += self._terms.every
        return missed

    def restart(self, terms: Terms) -> None:
        """Other terms hold: nothing is expected until the next event has come."""
        self._terms = terms
        self._anchor = None
        self._seen.clear()

    def _skip(self, now_ns: int) -> None:
        """After a pause beyond all bounds, judge only the newest slots."""
        behind_ns = now_ns - self._deadline_ns(self._next_slot)
        step_ns = self._terms.period.period_ns * self._terms.every
        too_many = int(behind_ns // step_ns) - MISSED_MAX
        if too_many > 0:
            self._next_slot += too_many * self._terms.every
            self.skipped += too_many
            self._seen = {slot for slot in self._seen if slot >= self._next_slot}

    def _deadline_ns(self, slot: int) -> int:
        assert self._anchor is not None
        return self._anchor.at_ns + self._distance_ns(slot) + self._terms.latency_ns

    def _expected_ns(self, slot: int) -> int:
        assert self._anchor is not None
        return self._anchor.created_ns + self._distance_ns(slot)

    def _distance_ns(self, slot: int) -> int:
        assert self._anchor is not None
        return int((slot - self._anchor.slot) * self._terms.period.period_ns)
