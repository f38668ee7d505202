"""Groups: variables of different periods that form sets at a common interval (S0 A26).

Law: the group's interval is a common multiple of its members' periods, and their phases are equal.
Then a member's slot k * n, n being interval over period, belongs to group slot k, whatever the
jitter of its stamp within its own slot; and a set is complete when each member has its event.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd, lcm
from typing import TYPE_CHECKING

from gridstat.model.errors import GroupMismatch, InvalidPeriod
from gridstat.model.rate_law import EVERY_MAX, Period, slot_of

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True, slots=True)
class Member:
    """A group member: its name, period and phase; an aperiodic variable cannot be one."""

    name: str
    period: Period
    phase_ns: int = 0


def member_every(interval: Period, member: Member, others: Iterable[Member] = ()) -> int:
    """Return the divisor n: every n-th slot of the member belongs to a set.

    Raise with a proposed interval if no slot does.
    """
    others = tuple(others)
    for other in others:
        if other.phase_ns != member.phase_ns:
            raise GroupMismatch(
                f"{member.name} has phase {member.phase_ns} ns,"
                f" and {other.name} in the group has {other.phase_ns} ns",
                hint=f"publish {member.name} with phase_ns={other.phase_ns}, or make another group",
            )
    every, rest = divmod(_fraction(interval), _fraction(member.period))
    if every >= 1 and not rest and every <= EVERY_MAX:
        return every
    raise GroupMismatch(
        f"{interval} is not a multiple of {member.name}'s period of {member.period}",
        hint=_proposal(interval, [*others, member]),
    )


def common_interval(periods: Iterable[Period], at_least: Period | None = None) -> Period | None:
    """Return the shortest common multiple not shorter than `at_least`; None if out of bounds."""
    parts = [_fraction(period) for period in periods]
    if not parts:
        return at_least
    shortest = Fraction(
        lcm(*(part.numerator for part in parts)), gcd(*(part.denominator for part in parts))
    )
    if at_least is not None:
        shortest *= max(1, -(-_fraction(at_least) // shortest))
    try:
        return Period(shortest.numerator, shortest.denominator)
    except InvalidPeriod:
        return None


def group_slot(created_ns: int, member: Member, every: int) -> int | None:
    """Return the set of a member's event; None if the event lies between two sets."""
    slot, rest = divmod(slot_of(created_ns, member.period, member.phase_ns), every)
    return None if rest else slot


def _proposal(interval: Period, members: list[Member]) -> str:
    found = common_interval([member.period for member in members], interval)
    if found is None:
        return "these periods have no common multiple in bounds; make groups of like members"
    return f"an interval of {found} is a multiple of all members' periods"


def _fraction(period: Period) -> Fraction:
    return Fraction(period.seconds, period.per_seconds)
