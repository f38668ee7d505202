"""Sets of a group: events of all members for one group slot (S0 A26).

Pure: the caller passes the time of each event, on the steady clock. A set is complete when each
member that the group had at the set's beginning has its event; a set that is not complete by its
deadline is counted and never shown.
"""

from __future__ import annotations

import reprlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gridstat.endpoint.slot_clock import ClockSetbackDetector
from gridstat.model.errors import LayoutError
from gridstat.model.group_law import group_slot, member_every
from gridstat.model.qos import BASELINE_MODE
from gridstat.model.short_text import counted, short_repr

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.endpoint.delivery import Delivery
    from gridstat.model.group_law import Member
    from gridstat.model.rate_law import Period

HISTORY_MAX: Final = 10_000
OPEN_SETS_MAX: Final = 1_024
"""Incomplete sets; of more the oldest is dropped."""


@dataclass(frozen=True, slots=True)
class GroupSet:
    """One consistent picture: an event of every member, all of one group slot."""

    slot: int
    deliveries: Mapping[str, Delivery]

    @property
    def values(self) -> dict[str, object]:
        """The values alone, by member."""
        return {name: delivery.value for name, delivery in self.deliveries.items()}

    def __repr__(self) -> str:
        members = counted(len(self.deliveries), "member")
        return short_repr(self, f"slot {self.slot}", members, reprlib.repr(self.values))

    def copy(self) -> GroupSet:
        """Return a copy that shares no mutable part."""
        return GroupSet(self.slot, {name: each.copy() for name, each in self.deliveries.items()})


@dataclass(frozen=True, slots=True)
class GroupTerms:
    """Interval of sets in one mode, and their latency."""

    interval: Period
    latency_ns: int


@dataclass(slots=True)
class _OpenSet:
    missing: set[str]
    deadline_ns: int
    deliveries: dict[str, Delivery] = field(default_factory=dict)


@dataclass(slots=True)
class _Membership:
    member: Member
    every: int


class GroupSets:
    """Complete sets, newest first, in one tuple that is replaced as a whole: readers in other
    threads see all of a set or nothing of it. All are of the interval of the active modes."""

    def __init__(self, terms: Mapping[int, GroupTerms], history: int = 1) -> None:
        if not 1 <= history <= HISTORY_MAX:
            raise LayoutError(f"a history of {history} sets, and must be 1 to {HISTORY_MAX}")
        self.history = history
        self._terms = dict(terms)
        self._active = self._terms.get(BASELINE_MODE)
        self._modes = 1 << BASELINE_MODE
        self._members: dict[str, _Membership] = {}
        self._open: dict[int, _OpenSet] = {}
        self._finished: dict[int, None] = {}
        self._complete: tuple[GroupSet, ...] = ()
        self._setback = ClockSetbackDetector()
        self._newest_ns = 0
        self.completed = 0
        self.incomplete = 0

    @property
    def interval(self) -> Period:
        """Present interval of sets; the shortest of all modes while no active mode has sets."""
        found = self._active or _fastest(self._terms.values())
        assert found is not None, "a group has terms for one mode at least"
        return found.interval

    def set_modes(self, modes: int) -> None:
        """Use the interval of these modes from now on; of several the shortest.

        What was open under another interval is neither complete nor held against the cloud.
        """
        if modes == self._modes:
            return
        self._modes = modes
        active = _fastest(
            each for mode, each in self._terms.items() if mode == BASELINE_MODE or modes >> mode & 1
        )
        before, self._active = self._active, active
        if active is None or before is None or active.interval != before.interval:
            self._open.clear()
            self._finished.clear()
            self._complete = ()
            for membership in self._members.values():
                membership.every = member_every(self.interval, membership.member)

    @property
    def complete(self) -> tuple[GroupSet, ...]:
        """Newest complete sets, at most `history`, the newest slot first."""
        return self._complete

    @property
    def members(self) -> tuple[str, ...]:
        """Names of the members, in alphabetical order."""
        return tuple(sorted(self._members))

    @property
    def next_due_ns(self) -> int | None:
        """Time at which the next open set is dropped."""
        return min((each.deadline_ns for each in self._open.values()), default=None)

    def check(self, member: Member) -> int:
        """Return the divisor of a possible member's slots; raise `GroupMismatch` with a
        proposal."""
        others = [each.member for name, each in self._members.items() if name != member.name]
        for terms in self._terms.values():
            member_every(terms.interval, member, others)
        return member_every(self.interval, member, others)

    def has(self, member: Member) -> bool:
        """Return whether it is a member with this very period and phase."""
        held = self._members.get(member.name)
        return held is not None and held.member == member

    def add(self, member: Member) -> None:
        """Add a member, needed from the next set on; a known one may change its period."""
        self._members[member.name] = _Membership(member, self.check(member))

    def remove(self, name: str) -> list[GroupSet]:
        """Remove a member; return the sets that only waited for it, now complete."""
        self._members.pop(name, None)
        done = []
        for slot, each in sorted(self._open.items()):
            each.missing.discard(name)
            each.deliveries.pop(name, None)
            if not each.missing:
                del self._open[slot]
                if each.deliveries:
                    done.append(self._completed(slot, each))
        return done

    def take(self, name: str, delivery: Delivery, arrived_ns: int, age_ns: int) -> GroupSet | None:
        """Take a member's event; return the set that it completes, if any."""
        membership = self._members.get(name)
        if membership is None or self._active is None:
            return None
        slot = group_slot(delivery.created_ns, membership.member, membership.every)
        if slot is None or slot in self._finished:
            return None
        held = self._open.get(slot)
        if held is None:
            deadline_ns = arrived_ns - max(0, age_ns) + self._active.latency_ns
            held = self._open[slot] = _OpenSet(set(self._members), deadline_ns)
            if len(self._open) > OPEN_SETS_MAX:
                self._give_up(min(self._open))
        if name not in held.missing:
            return None  # Not a member when the set began, or a second event of its slot.
        held.missing.discard(name)
        held.deliveries[name] = delivery
        if held.missing:
            return None
        self._open.pop(slot, None)
        self._follow_clock(slot, arrived_ns)
        return self._completed(slot, held)

    def expire(self, now_ns: int) -> list[int]:
        """Drop the sets whose deadline has passed; return their slots."""
        late = sorted(slot for slot, each in self._open.items() if each.deadline_ns <= now_ns)
        for slot in late:
            self._give_up(slot)
        return late

    def _give_up(self, slot: int) -> None:
        del self._open[slot]
        self.incomplete += 1
        self._finish(slot)

    def _finish(self, slot: int) -> None:
        """Mark a slot as finished: later events or members must not open the set again."""
        self._finished[slot] = None
        if len(self._finished) > OPEN_SETS_MAX:
            del self._finished[next(iter(self._finished))]

    def _follow_clock(self, slot: int, arrived_ns: int) -> None:
        """Forget complete sets of before once the members' clock has been set back."""
        if not self._complete or slot > self._complete[0].slot:
            self._newest_ns = arrived_ns
        elif self._setback.is_set_back(
            int(slot * self.interval.period_ns), arrived_ns, self._newest_ns
        ):
            self._complete = ()
            self._newest_ns = arrived_ns

    def _completed(self, slot: int, held: _OpenSet) -> GroupSet:
        self.completed += 1
        self._finish(slot)
        ordered = {name: held.deliveries[name] for name in sorted(held.deliveries)}
        found = GroupSet(slot, ordered)
        kept = sorted((*self._complete, found), key=lambda each: -each.slot)
        self._complete = tuple(kept[: self.history])
        return found


def _fastest(terms: Iterable[GroupTerms]) -> GroupTerms | None:
    return min(terms, key=lambda each: (each.interval.period_ns, each.latency_ns), default=None)
