"""Law of bands: what contracts get where something is full, by priority and within their bands.

Each contract has a band: the divisor `best` that it wants, and the divisor `worst` that it has
agreed to. Law: as long as an element (a channel or a router) is short, contracts of the lowest
priority over it are lowered, and those of the next priority only if all of these are at their
worst. Within one priority the split is max-min fair in events a second: nobody gets more than it
must give up for somebody who has less. Divisors are whole numbers, so equal contracts differ by one
step at most; among them those that have more already keep it, lest the split swap them for nothing.

Contracts of one variable share the slots on a hop (`union_rate`): lowering one of several may free
nothing, and then it is not lowered. The result is a pure function of the contracts, not of their
order; a broker turns it into changes of contracts (`broker/capacity/band_planning.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from math import ceil
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from gridstat.model.rate_law import union_rate

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Element: TypeAlias = int | str
"""A channel's number or a router's name."""


class BandPolicy(StrEnum):
    """What a broker does with a request that does not fit as desired."""

    FIRST_COME = "first-come"
    """Nobody is lowered: the request gets what is left, within its band."""
    BANDS = "bands"
    """Contracts of its own and lower priorities are lowered within their bands."""
    PREEMPT = "bands+preempt"
    """If that is not enough, contracts of lower priorities are ended for a requester whom an access
    rule allows it."""


ROUNDS_MAX: Final = 64
"""Rounds of one split; each ends with a further element that is full."""


@dataclass(frozen=True, slots=True)
class Carriage:
    """One variable on one hop, published `events_per_s` times a second.

    `charges` are the elements that the hop loads, each with the cost of one event; `fixed` are the
    divisors of contracts that do not take part.
    """

    events_per_s: Fraction
    charges: tuple[tuple[Element, int], ...]
    fixed: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class BandedContract:
    """A contract that takes part; `carriages` are the indices of the hops that it uses.

    `present` is the divisor that it has, which decides between equals; a newcomer has its worst.
    """

    number: int
    priority: int
    events_per_s: Fraction
    best: int
    worst: int
    present: int
    carriages: tuple[int, ...]


class Steps(Protocol):
    """Budget of steps, of which every change of a contract on a hop takes some."""

    def is_spent(self, steps: int = 1) -> bool:
        """Count some steps, and return whether the budget is spent."""
        ...


class _Unbounded:
    def is_spent(self, steps: int = 1) -> bool:
        del steps
        return False


UNBOUNDED: Final[Steps] = _Unbounded()
STEPS_PER_CHANGE: Final = 4
"""Steps of a path search that take as long as one change of a contract on a hop."""


def split(
    contracts: Iterable[BandedContract],
    carriages: Sequence[Carriage],
    free: Mapping[Element, Fraction],
    steps: Steps = UNBOUNDED,
) -> dict[int, int] | None:
    """Return the divisor of each contract, or None if the elements are short at their worst too.

    `free` is what each element has for the carriages together. Return None also if the budget of
    steps is spent before the split is complete.
    """
    try:
        return _split(sorted(contracts, key=lambda each: each.number), carriages, free, steps)
    except _SpentError:
        return None


class _SpentError(Exception):
    """The budget of steps is spent."""


def _split(
    some: list[BandedContract],
    carriages: Sequence[Carriage],
    free: Mapping[Element, Fraction],
    steps: Steps,
) -> dict[int, int] | None:
    books = _Books(some, carriages, free, steps)
    if not books.lacks_room():
        return books.everys
    lowered: list[list[BandedContract]] = []
    for priority in sorted({each.priority for each in some}, reverse=True):
        concerned = [each for each in some if each.priority == priority and books.may_relieve(each)]
        for each in concerned:
            books.place(each, each.worst)
        lowered.append(concerned)
        if not books.lacks_room():
            for group in reversed(lowered):
                _raise_fairly(books, group)
            return books.everys
    return None


def _raise_fairly(books: _Books, group: list[BandedContract]) -> None:
    """Raise contracts of one priority from their worst, as far as there is room: max-min fair.

    In each round all that can still rise get the shortest common interval that fits. Whoever can
    then not rise by a step is limited by an element that is full, and stays.
    """
    rising = group
    for _ in range(ROUNDS_MAX):
        if not rising:
            return
        _find_interval(books, rising)
        still: list[BandedContract] = []
        for each in sorted(rising, key=lambda one: _order(books, one)):
            every = books.everys[each.number]
            if every <= each.best:
                continue
            books.place(each, every - 1)
            if books.lacks_room():
                books.place(each, every)
            else:
                still.append(each)
        rising = still


def _find_interval(books: _Books, rising: list[BandedContract]) -> None:
    """Place contracts at the shortest common interval that fits; their present places do."""
    base = max(each.events_per_s for each in rising)
    most = {each.number: books.everys[each.number] for each in rising}

    def place(steps: int) -> None:
        for each in rising:
            every = ceil(steps * each.events_per_s / base)
            books.place(each, min(max(every, each.best), most[each.number]))

    low, high = 0, max(ceil(most[each.number] * base / each.events_per_s) for each in rising)
    while low < high:
        middle = (low + high) // 2
        place(middle)
        if books.lacks_room():
            low = middle + 1
        else:
            high = middle
    place(high)


def _order(books: _Books, each: BandedContract) -> tuple[Fraction, int, int]:
    """Return the order in which contracts rise: who has least, then who had more before."""
    return each.events_per_s / books.everys[each.number], each.present, each.number


class _Books:
    """What is left of each element while the contracts stand at `everys`."""

    def __init__(
        self,
        contracts: Iterable[BandedContract],
        carriages: Sequence[Carriage],
        free: Mapping[Element, Fraction],
        steps: Steps,
    ) -> None:
        self.everys: dict[int, int] = {}
        self._steps = steps
        self._costs = [
            tuple([(element, cost * each.events_per_s) for element, cost in each.charges])
            for each in carriages
        ]
        self._fixed = [each.fixed for each in carriages]
        self._taken: list[dict[int, int]] = [{} for _ in carriages]
        self._shares = [Fraction(0)] * len(carriages)
        self._left = dict(free)
        self._short = {element for element, left in free.items() if left < 0}
        for index, carriage in enumerate(carriages):
            if carriage.fixed:
                self._charge(index)
        for each in contracts:
            self.everys[each.number] = each.best
            self._count(each, 0, each.best)

    def lacks_room(self) -> bool:
        return bool(self._short)

    def may_relieve(self, each: BandedContract) -> bool:
        """Return whether a contract has a band, and crosses an element that is short."""
        return each.worst > each.best and any(
            element in self._short for index in each.carriages for element, _ in self._costs[index]
        )

    def place(self, each: BandedContract, every: int) -> None:
        before = self.everys[each.number]
        if every != before:
            self.everys[each.number] = every
            self._count(each, before, every)

    def _count(self, each: BandedContract, before: int, every: int) -> None:
        """Count a contract at one divisor instead of another; 0 is none."""
        for index in each.carriages:
            if not self._costs[index]:
                continue
            taken = self._taken[index]
            if before:
                taken[before] -= 1
                if not taken[before]:
                    del taken[before]
            taken[every] = taken.get(every, 0) + 1
            self._charge(index)

    def _charge(self, index: int) -> None:
        if self._steps.is_spent(STEPS_PER_CHANGE):
            raise _SpentError
        share = _share(tuple(sorted({*self._fixed[index], *self._taken[index]})))
        more = share - self._shares[index]
        if not more:
            return
        self._shares[index] = share
        for element, cost in self._costs[index]:
            left = self._left[element] = self._left[element] - more * cost
            if left.numerator < 0:
                self._short.add(element)
            else:
                self._short.discard(element)


@lru_cache(maxsize=16_384)
def _share(everys: tuple[int, ...]) -> Fraction:
    return union_rate(everys) if everys else Fraction(0)
