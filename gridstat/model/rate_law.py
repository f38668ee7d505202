"""The rate filter: which events of a variable a slower subscription sees.

Law (S0 A7, made exact for periods such as 1/30 s): an event belongs to the publishing slot
floor((created - phase) / period + 1/2); a subscription at every n-th slot sees it iff
slot mod n == 0. The rule looks at nothing but the event's own time stamp, so every router on every
redundant path decides alike, without talking.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from typing import Final

from gridstat.model.errors import InvalidPeriod

NS_PER_S: Final = 1_000_000_000
PERIOD_PART_MAX: Final = 2**32 - 1
SLOT_MIN: Final = -(2**63)
SLOT_MAX: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Period:
    """A publishing period of exactly `seconds / per_seconds` seconds, always in lowest terms.

    `Period(1, 30)` is thirty events a second; `Period(2, 60)` is the same value and reads 1 and 30.
    """

    seconds: int
    per_seconds: int

    def __post_init__(self) -> None:
        for part in (self.seconds, self.per_seconds):
            # Also for callers without mypy: a float slipped in here would drift for days unseen.
            if type(part) is not int or not 1 <= part <= PERIOD_PART_MAX:
                raise InvalidPeriod(
                    f"a period is two whole numbers from 1 to {PERIOD_PART_MAX}, not {part!r}"
                )
        common = gcd(self.seconds, self.per_seconds)
        object.__setattr__(self, "seconds", self.seconds // common)
        object.__setattr__(self, "per_seconds", self.per_seconds // common)

    @property
    def period_ns(self) -> Fraction:
        """The period in nanoseconds, exact: 100000000/3 for thirty a second."""
        return Fraction(self.seconds * NS_PER_S, self.per_seconds)


def slot_of(created_ns: int, period: Period, phase_ns: int = 0) -> int:
    """The publishing slot nearest to `created_ns`, counted from the phase, in exact integers.

    The upper edge of a slot belongs to the next one. Slots are signed 64-bit numbers in the core;
    only stamps centuries ahead with periods below 2 ns would need more, and are held at the bound.
    """
    half = period.seconds * NS_PER_S
    slot = (2 * (created_ns - phase_ns) * period.per_seconds + half) // (2 * half)
    return max(SLOT_MIN, min(SLOT_MAX, slot))


def is_due(created_ns: int, period: Period, every: int, phase_ns: int = 0) -> bool:
    """Whether a subscription to every `every`-th slot sees an event created at `created_ns`."""
    assert every >= 1, "a divisor counts slots"
    return slot_of(created_ns, period, phase_ns) % every == 0
