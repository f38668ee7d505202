"""Number of slots that a contract promises between two instants.

Law: the instant of a slot is phase + slot * period, exact. An interval includes the slots at its
start and excludes those at its end, so that hours add up to days. Every n-th of these slots is due.
No event is used, so the count is that of promised slots, delivered or not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period


def first_slot_from(instant_ns: int, period: Period, phase_ns: int = 0) -> int:
    """Return the first slot at or after this instant."""
    return -(-(instant_ns - phase_ns) * period.per_seconds // (period.seconds * NS_PER_S))


def slot_instant_ns(slot: int, period: Period, phase_ns: int = 0) -> int:
    """Return a slot's instant in whole nanoseconds, rounded down."""
    return phase_ns + slot * period.seconds * NS_PER_S // period.per_seconds


def due_between(
    from_ns: int, to_ns: int, period: Period, *, every: int = 1, phase_ns: int = 0
) -> int:
    """Return the number of slots due from one instant up to, and excluding, another."""
    assert every >= 1, "a divisor counts slots"
    if to_ns <= from_ns:
        return 0
    first, after = (first_slot_from(each, period, phase_ns) for each in (from_ns, to_ns))
    return -(-after // every) - -(-first // every)
