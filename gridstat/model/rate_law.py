"""The rate filter: selection of the events that a slower subscription receives.

Law (S0 A7, made exact for periods such as 1/30 s): an event belongs to the publishing slot
floor((created - phase) / period + 1/2); a subscription at every n-th slot sees it iff
slot mod n == 0. The rule uses only the event's own time stamp, so all routers on all redundant
paths decide alike without communication.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from heapq import heapify, heappop, heappush
from itertools import combinations
from math import gcd, lcm
from typing import TYPE_CHECKING, Final

from gridstat.model.call_options import checked_calls
from gridstat.model.errors import IntervalNotSatisfiable, InvalidPeriod, LayoutError
from gridstat.model.exact_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

NS_PER_S: Final = 1_000_000_000
PERIOD_PART_MAX: Final = 2**32 - 1
SLOT_MIN: Final = -(2**63)
SLOT_MAX: Final = 2**63 - 1
EVERY_MAX: Final = 2**32 - 1
CHANNEL_DIVISORS_MAX: Final = 12
"""Maximum divisors of a variable on a channel in one mode; more are merged to common ones."""
DIVISORS_CHOSEN_MAX: Final = 32
"""Maximum divisors with a search for the best merge; more get one common divisor."""
MODAL_DIVISORS_MAX: Final = 64
"""Maximum different divisors of a variable on a channel over all modes: those of a core's row."""


@checked_calls()
@dataclass(frozen=True, slots=True)
class Period:
    """A publishing period of exactly `seconds / per_seconds` seconds, always in lowest terms.

    `Period(1, 30)` is thirty events a second; `Period(2, 60)` is the same value and reads 1 and 30.
    """

    seconds: int
    per_seconds: int

    def __post_init__(self) -> None:
        seconds, per_seconds = _period_part(self.seconds), _period_part(self.per_seconds)
        common = gcd(seconds, per_seconds)
        object.__setattr__(self, "seconds", seconds // common)
        object.__setattr__(self, "per_seconds", per_seconds // common)

    def __str__(self) -> str:
        return f"{Fraction(self.seconds, self.per_seconds)} s"

    @property
    def period_ns(self) -> Fraction:
        """Exact period in nanoseconds: 100000000/3 for thirty a second."""
        return Fraction(self.seconds * NS_PER_S, self.per_seconds)


def _period_part(part: int) -> int:
    # Also for callers without mypy: a fraction slipped in here would drift for days unseen.
    try:
        found = whole_number("part", part)
    except LayoutError:
        found = 0
    if not 1 <= found <= PERIOD_PART_MAX:
        raise InvalidPeriod(
            f"a period is two whole numbers from 1 to {PERIOD_PART_MAX}, not {part!r}"
        )
    return found


def slot_of(created_ns: int, period: Period, phase_ns: int = 0) -> int:
    """Return the publishing slot nearest to `created_ns`, counted from the phase, exactly.

    The upper edge of a slot belongs to the next one. Slots are signed 64-bit numbers in the core;
    only stamps centuries ahead with periods below 2 ns would need more, and are held at the bound.
    """
    half = period.seconds * NS_PER_S
    slot = (2 * (created_ns - phase_ns) * period.per_seconds + half) // (2 * half)
    return max(SLOT_MIN, min(SLOT_MAX, slot))


def is_due(created_ns: int, period: Period, every: int, phase_ns: int = 0) -> bool:
    """Return whether a subscription to every `every`-th slot receives an event of this time."""
    assert every >= 1, "a divisor counts slots"
    return slot_of(created_ns, period, phase_ns) % every == 0


def every_for(interval: Period, period: Period) -> int:
    """Return the divisor for a requested interval, rounded down to a multiple (S0 A7).

    25 ms of a 10 ms variable is every 2nd slot. The interval is exact too, since 66,666,666 ns
    would just miss every 2nd slot of thirty a second, and Period(1, 15) does not.
    """
    every = (interval.seconds * period.per_seconds) // (interval.per_seconds * period.seconds)
    if every < 1:
        raise IntervalNotSatisfiable(
            f"requested every {interval} of a variable that is published every {period}"
        )
    return min(every, EVERY_MAX)


def minimal_divisors(
    requested: Iterable[int], divisors_max: int = CHANNEL_DIVISORS_MAX
) -> tuple[int, ...]:
    """Return the divisors that a channel needs for all requested ones, ascending, at most 12.

    A multiple of another adds nothing and is dropped (S0 A7, lemma). If too many are left, two are
    replaced by their greatest common divisor, which covers both: never slower than requested. The
    pair with the largest common divisor is chosen, since 1/n bounds the added rate.
    """
    assert divisors_max >= 1
    divisors = _without_multiples(requested)
    if len(divisors) <= divisors_max:
        return tuple(divisors)
    pairs = [(-gcd(a, b), a, b) for a, b in combinations(divisors, 2)]
    heapify(pairs)
    alive = set(divisors)
    while len(alive) > divisors_max:
        negative, a, b = heappop(pairs)
        if a in alive and b in alive:
            merged = -negative
            alive = {divisor for divisor in alive if divisor % merged}
            for divisor in alive:
                low, high = sorted((merged, divisor))
                heappush(pairs, (-gcd(low, high), low, high))
            alive.add(merged)
    return tuple(sorted(alive))


def modal_divisors(requested: Mapping[int, Iterable[int]]) -> dict[int, tuple[int, ...]]:
    """Return the divisors of a channel for each mode; mode 0, the baseline, is always active.

    A mode has no divisor that the baseline covers. Where all modes together would need more
    divisors than a row holds, each gets its share, at least one: never slower than requested.
    """
    everys = {mode: _without_multiples(divisors) for mode, divisors in requested.items()}
    kept = _modal_divisors(everys, CHANNEL_DIVISORS_MAX)
    if len({every for own in kept.values() for every in own}) > MODAL_DIVISORS_MAX:
        kept = _modal_divisors(everys, max(1, MODAL_DIVISORS_MAX // len(everys)))
    return kept


def _modal_divisors(
    everys: Mapping[int, list[int]], divisors_max: int
) -> dict[int, tuple[int, ...]]:
    always = _few_divisors(everys.get(0, []), divisors_max)
    kept = {0: always} if always else {}
    for mode, divisors in sorted(everys.items()):
        unserved = [every for every in divisors if all(every % taken for taken in always)]
        if mode != 0 and unserved:
            kept[mode] = _few_divisors(unserved, divisors_max)
    return kept


def _few_divisors(divisors: list[int], divisors_max: int) -> tuple[int, ...]:
    """Return at most `divisors_max` divisors; for very many, their common divisor.

    The search for the best merge takes longer with more divisors, and a thousand odd intervals
    must not slow down a broker or router.
    """
    if len(divisors) > DIVISORS_CHOSEN_MAX:
        return (gcd(*divisors),)
    return minimal_divisors(divisors, divisors_max)


def union_rate(requested: Iterable[int]) -> Fraction:
    """Return the exact share of slots that a channel carries for these divisors (S0 A28).

    Inclusion and exclusion over the minimal divisors; there are at most 12, hence at most 4,096
    terms for any request, and 90 + 240 ms of 30 ms is 5/12 and not the 1/3 of the faster alone.
    """
    counted: dict[int, int] = {}
    for divisor in minimal_divisors(requested):
        both = {divisor: 1}
        for common, sign in counted.items():
            multiple = lcm(common, divisor)
            both[multiple] = both.get(multiple, 0) - sign
        for multiple, sign in both.items():
            counted[multiple] = counted.get(multiple, 0) + sign
    whole = lcm(*counted)
    return Fraction(sum(sign * (whole // multiple) for multiple, sign in counted.items()), whole)


def _without_multiples(requested: Iterable[int]) -> list[int]:
    kept: list[int] = []
    for divisor in sorted(set(requested)):
        assert divisor >= 1, "a divisor counts slots"
        if all(divisor % smaller for smaller in kept):
            kept.append(divisor)
    return kept
