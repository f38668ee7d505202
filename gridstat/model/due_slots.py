"""How many slots a contract promises between two instants.

Law: the instant of a slot is phase + slot * period, exact; a stretch of time has the slots from its
beginning on and without its end, so that hours add up to days. Of these every n-th is due. It looks
at no event, and so counts what was promised whether or not anything came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from gridstat.model.rate_law import Period


def first_slot_from(instant_ns: int, period: Period, phase_ns: int = 0) -> int:
    """The first slot whose instant is not before this one."""
    return -(-(instant_ns - phase_ns) * period.per_seconds // (period.seconds * NS_PER_S))


def slot_instant_ns(slot: int, period: Period, phase_ns: int = 0) -> int:
    """A slot's instant in whole nanoseconds, rounded down."""
    return phase_ns + slot * period.seconds * NS_PER_S // period.per_seconds


def due_between(
    from_ns: int, to_ns: int, period: Period, *, every: int = 1, phase_ns: int = 0
) -> int:
    """How many slots are due from one instant up to, and without, another."""
    assert every >= 1, "a divisor counts slots"
    if to_ns <= from_ns:
        return 0
    first, after = (first_slot_from(each, period, phase_ns) for each in (from_ns, to_ns))
    return -(-after // every) - -(-first // every)
