"""Exact cost of a reservation: event rates, bytes on a channel, and totals over the modes.

The law (S0 A28, made exact): a channel carries the union of the slots of a variable that its
receivers take. Each event is charged as if it were alone in its datagram, because packing is a gain
that nobody is promised. A total is the baseline plus, for every set of modes of which one is active
at a time, the largest amount that any mode of the set adds.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.channel_security import TAG_BYTES
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.qos import BASELINE_MODE, MODES_MAX
from gridstat.model.rate_law import (
    CHANNEL_DIVISORS_MAX,
    NS_PER_S,
    modal_divisors,
    union_rate,
)
from gridstat.model.status import OPTION_BYTES
from gridstat.model.wire_law import wire_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.model.status import StatusVariable

IP_AND_UDP_BYTES: Final = 28
DATAGRAM_HEADER_BYTES: Final = 16
EVENT_BYTES: Final = 24
Divisors: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]
"""Pairs of a mode and the divisors that are taken in it, both ascending."""
Counts: TypeAlias = tuple[tuple[int, int, int], ...]
"""Triples of mode, divisor and the number of subscriptions that take it, ascending."""
MODE_SETS_DEFAULT: Final[tuple[frozenset[int], ...]] = (frozenset(range(1, MODES_MAX)),)
"""One set of all modes: a single mode is active at a time in addition to the baseline."""
NOTHING: Final = Fraction(0)
_BITS: Final = 64
"""Binary fraction digits that quick comparisons use."""
_ONE: Final = 1 << _BITS


def event_rate(variable: StatusVariable) -> Fraction:
    """Return the events a second that the publisher may send; raises unless they are bounded."""
    check_rate(variable)
    if variable.period is not None:
        rate = Fraction(variable.period.per_seconds, variable.period.seconds)
        return rate * variable.replay_speed if variable.is_replay else rate
    return Fraction(NS_PER_S, variable.interval_ns_min)


def check_rate(variable: StatusVariable) -> None:
    """Raise unless a period or a minimum interval bounds the rate of the variable."""
    if variable.period is None and variable.interval_ns_min < 1:
        raise IntervalNotSatisfiable(
            f"{variable.name} is aperiodic without a minimum interval, so its rate has no bound",
            hint="register it with interval_ns_min, the shortest time between two of its events",
        )


def event_bytes(
    variable: StatusVariable, mtu_bytes: int, *, is_ipv6: bool = False, is_sealed: bool = False
) -> int:
    """Return the bytes of one event on a channel, alone in its datagram, with IP headers.

    A sealed datagram carries a tag behind its events, which is charged too.

    A datagram above the MTU is sent in fragments, each with its own headers. By IPv4 each fragment
    is charged 28 bytes, which covers it: the size of every datagram is a multiple of eight.
    """
    datagram = DATAGRAM_HEADER_BYTES + EVENT_BYTES + OPTION_BYTES * variable.option_count
    if is_sealed:
        datagram += TAG_BYTES
    if is_ipv6:
        return wire_bytes(datagram, mtu_bytes, is_ipv6=True)
    fragments = -(-datagram // mtu_bytes)
    return datagram + IP_AND_UDP_BYTES * fragments


class Amount:
    """Fraction with the parts that a sum needs, computed once."""

    __slots__ = ("ceiling", "denominator", "numerator", "value")

    def __init__(self, value: Fraction) -> None:
        self.value = value
        self.numerator = value.numerator
        self.denominator = value.denominator
        self.ceiling = -(-(self.numerator << _BITS) // self.denominator)

    def times(self, count: int) -> Amount:
        """Return the sum of so many equal parts; it can be removed part by part."""
        found = Amount.__new__(Amount)
        found.value, found.ceiling = self.value * count, self.ceiling * count
        found.numerator, found.denominator = self.numerator * count, self.denominator
        return found

    def upper_bound(self) -> float:
        """Return the amount as a float that may be slightly above it."""
        return self.ceiling / _ONE


ZERO: Final = Amount(NOTHING)


class ExactSum:
    """Sum of fractions that is exact and cheap for arbitrary denominators.

    Numerators are kept by denominator, because the common denominator of many odd divisors has
    thousands of digits. `ceiling` sums all parts, each rounded up to 64 binary fraction digits; it
    decides nearly every comparison without the exact value.
    """

    __slots__ = ("ceiling", "numerators")

    def __init__(self) -> None:
        self.numerators: dict[int, int] = {}
        """Sum of numerators by denominator; empty if, and only if, nothing is counted."""
        self.ceiling = 0
        """Upper bound of the value, in units of 2^-64."""

    def add(self, part: Amount) -> None:
        numerators, of = self.numerators, part.denominator
        if numerator := numerators.get(of, 0) + part.numerator:
            numerators[of] = numerator
        self.ceiling += part.ceiling

    def remove(self, part: Amount) -> None:
        """Remove a part that was added before."""
        numerators, of = self.numerators, part.denominator
        if numerator := numerators.get(of, 0) - part.numerator:
            numerators[of] = numerator
        else:
            numerators.pop(of, None)
        self.ceiling -= part.ceiling

    @property
    def value(self) -> Fraction:
        if len(self.numerators) == 1:  # The usual case: all parts are of one kind.
            ((of, numerator),) = self.numerators.items()
            return Fraction(numerator, of)
        return sum((Fraction(numerator, of) for of, numerator in self.numerators.items()), NOTHING)


class ModalSum:
    """Total of charges over all mode sets: the baseline and the largest mode of each set."""

    __slots__ = ("_mode_sets", "_sums")

    def __init__(self, mode_sets: tuple[frozenset[int], ...] = MODE_SETS_DEFAULT) -> None:
        self._mode_sets = mode_sets
        self._sums: dict[int, ExactSum] = {}

    def replace(self, mode: int, old: Amount | None, new: Amount | None) -> None:
        """Count `new` instead of `old`, which was counted before."""
        found = self._sums.get(mode)
        if found is None:
            found = self._sums[mode] = ExactSum()
        if old is not None:
            found.remove(old)
        if new is not None:
            found.add(new)
        if not found.numerators:
            del self._sums[mode]

    @property
    def value(self) -> Fraction:
        return self.total_of({mode: found.value for mode, found in self._sums.items()})

    def of_mode(self, mode: int) -> Fraction:
        """Return the amount that this mode alone adds; for mode 0 the baseline's total."""
        found = self._sums.get(mode)
        return NOTHING if found is None else found.value

    def modes(self) -> frozenset[int]:
        """Return the modes in which anything is counted."""
        return frozenset(self._sums)

    def exceeds(self, limit: int, beside: Amount = ZERO) -> bool:
        """Return whether the total plus `beside` is above the limit, exactly."""
        ceiling = self._ceiling() + beside.ceiling
        return ceiling > limit << _BITS and self.value + beside.value > limit

    def upper_bound(self) -> float:
        """Return the total as a float that may be slightly above it, for latencies and surveys."""
        return self._ceiling() / _ONE

    def total_of(self, amounts: Mapping[int, Fraction]) -> Fraction:
        if len(amounts) == (BASELINE_MODE in amounts):  # No mode adds anything.
            return amounts.get(BASELINE_MODE, NOTHING)
        return amounts.get(BASELINE_MODE, NOTHING) + sum(
            (
                max((amounts[mode] for mode in amounts if mode in modes), default=NOTHING)
                for modes in self._mode_sets
            ),
            NOTHING,
        )

    def _ceiling(self) -> int:
        if len(self._sums) == 1:  # The usual case: the baseline alone, or one mode.
            (only,) = self._sums.values()
            return only.ceiling
        amounts = {mode: found.ceiling for mode, found in self._sums.items()}
        return modal_total(amounts, self._mode_sets)

    def __bool__(self) -> bool:
        return bool(self._sums)


def modal_total(amounts: Mapping[int, int], mode_sets: tuple[frozenset[int], ...]) -> int:
    """Return the baseline's amount plus the largest amount of each mode set."""
    total = amounts.get(BASELINE_MODE, 0)
    if len(amounts) > (BASELINE_MODE in amounts):
        for modes in mode_sets:
            total += max((amount for mode, amount in amounts.items() if mode in modes), default=0)
    return total


class DivisorCounts:
    """Divisors at which one variable is taken on one channel, by mode, with multiplicity.

    Equal counts share one immutable value, so everything derived from it is cached.
    """

    __slots__ = ("_counts",)

    def __init__(self, counts: Counts = ()) -> None:
        self._counts = counts

    def add(self, everys: Mapping[int, int]) -> bool:
        """Add one divisor in each of these modes; return whether any is new."""
        self._counts, is_new = _counted(self._counts, tuple(everys.items()), 1)
        return is_new

    def remove(self, everys: Mapping[int, int]) -> bool:
        """Remove divisors that were added; return whether any is taken no longer."""
        self._counts, is_gone = _counted(self._counts, tuple(everys.items()), -1)
        return is_gone

    def serves(self, everys: Mapping[int, int]) -> bool:
        """Return whether one more subscription at these divisors would add nothing."""
        return _serves(self._counts, tuple(everys.items()))

    def divisors(self, mode: int) -> tuple[int, ...]:
        return _divisors(self._counts, mode)

    def every_one(self, of_mode: int) -> tuple[int, ...]:
        """Return the divisors of a mode, each as often as it is taken."""
        return tuple(
            every for mode, every, count in self._counts if mode == of_mode for _ in range(count)
        )

    def modes(self) -> tuple[int, ...]:
        return tuple(sorted({mode for mode, _, _ in self._counts}))

    @property
    def has_baseline(self) -> bool:
        """True if any subscription takes the variable in all modes."""
        return any(mode == BASELINE_MODE for mode, _, _ in self._counts)

    def __bool__(self) -> bool:
        return bool(self._counts)

    def taken(self) -> Divisors:
        """Return the distinct divisors of each mode, as a hashable key."""
        return _taken(self._counts)


@lru_cache(maxsize=4_096)
def _counted(counts: Counts, everys: tuple[tuple[int, int], ...], by: int) -> tuple[Counts, bool]:
    """Return the counts after a change by `by`, and whether any divisor was added or removed."""
    found = {(mode, every): count for mode, every, count in counts}
    is_other = False
    for taken in everys:
        found[taken] = found.get(taken, 0) + by
        assert found[taken] >= 0, f"divisor {taken} was not taken"
        is_other |= found[taken] == max(by, 0)
    left = tuple((*taken, count) for taken, count in sorted(found.items()) if count)
    return left, is_other


@lru_cache(maxsize=4_096)
def _serves(counts: Counts, everys: tuple[tuple[int, int], ...]) -> bool:
    always = _divisors(counts, BASELINE_MODE)
    return all(
        _divides(always, every)
        or (mode != BASELINE_MODE and _divides(_divisors(counts, mode), every))
        for mode, every in everys
    )


@lru_cache(maxsize=4_096)
def _taken(counts: Counts) -> Divisors:
    modes = sorted({mode for mode, _, _ in counts})
    return tuple((mode, _divisors(counts, mode)) for mode in modes)


def _divisors(counts: Counts, of_mode: int) -> tuple[int, ...]:
    return tuple(every for mode, every, _ in counts if mode == of_mode)


def _divides(taken: Iterable[int], every: int) -> bool:
    return any(every % divisor == 0 for divisor in taken)


@lru_cache(maxsize=4_096)
def shares_of(taken: Divisors) -> Mapping[int, Fraction]:
    """Return the baseline's share of slots and each mode's addition, as the routers forward."""
    kept = modal_divisors(dict(taken))
    always = kept.get(BASELINE_MODE, ())
    return MappingProxyType(
        {
            mode: _share(always) if mode == BASELINE_MODE else _added(always, own)
            for mode, own in kept.items()
        }
    )


@lru_cache(maxsize=4_096)
def _added(always: tuple[int, ...], own: tuple[int, ...]) -> Fraction:
    if len(always) + len(own) <= CHANNEL_DIVISORS_MAX:
        return _share((*always, *own)) - _share(always)
    # Too many divisors for inclusion and exclusion; to count common slots twice is safe.
    return _share(own)


@lru_cache(maxsize=4_096)
def _share(divisors: tuple[int, ...]) -> Fraction:
    return union_rate(divisors)
