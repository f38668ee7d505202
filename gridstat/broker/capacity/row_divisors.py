"""How many different divisors the rows of a variable hold, so that no row has more than fit.

A core's row of a variable holds 64 divisors over all its channels, and a router would round more
down to common ones: it would forward more than is charged. They are counted over the whole cloud,
so no router's row can have more.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from gridstat.model.rate_law import MODAL_DIVISORS_MAX, modal_divisors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.broker.capacity.accounts import Carriage
    from gridstat.broker.capacity.charges import Divisors
    from gridstat.broker.capacity.stream_costs import StreamCost

EveryCounts: TypeAlias = tuple[tuple[int, int], ...]
"""A divisor, and on how many channels and deliveries it is kept; ascending."""


class RowDivisors:
    """By variable, the divisors that are kept on channels and deliveries, and on how many."""

    def __init__(self) -> None:
        self._counts: dict[int, EveryCounts] = {}
        self._crowded: dict[str, None] = {}

    def add(self, carriage: Carriage, stream_cost: StreamCost, everys: Mapping[int, int]) -> bool:
        """One more subscription takes the variable here; whether that changes any number."""
        number = stream_cost.variable.variable_id
        before = _taken(carriage, number)
        is_changed = carriage.add(stream_cost, everys)
        after = carriage.streams[number].taken
        if after is not before:
            held = self.count(number)
            if self._replace(number, before, after) > max(held, MODAL_DIVISORS_MAX):
                self._crowded[stream_cost.variable.name] = None
        return is_changed

    def remove(self, carriage: Carriage, variable_id: int, everys: Mapping[int, int]) -> bool:
        """Take back what was added; whether that changes any number."""
        before = _taken(carriage, variable_id)
        is_changed = carriage.remove(variable_id, everys)
        after = _taken(carriage, variable_id)
        if after is not before:
            self._replace(variable_id, before, after)
        return is_changed

    def newly_crowded(self) -> tuple[str, ...]:
        """The variables that have come to more divisors than a row holds, since the last time."""
        found, self._crowded = tuple(self._crowded), {}
        return found

    def count(self, variable_id: int) -> int:
        return len(self._counts.get(variable_id, ()))

    def _replace(self, variable_id: int, before: Divisors, after: Divisors) -> int:
        """How many different divisors the variable then has."""
        counts = _replaced(self._counts.get(variable_id, ()), before, after)
        if counts:
            self._counts[variable_id] = counts
        else:
            self._counts.pop(variable_id, None)
        return len(counts)


@lru_cache(maxsize=4_096)
def _replaced(counts: EveryCounts, before: Divisors, after: Divisors) -> EveryCounts:
    """Variables that are taken alike share one value."""
    found = dict(counts)
    more, less = _difference(before, after)
    for every in more:
        found[every] = found.get(every, 0) + 1
    for every in less:
        found[every] -= 1
    return tuple((every, count) for every, count in sorted(found.items()) if count)


@lru_cache(maxsize=4_096)
def _difference(before: Divisors, after: Divisors) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The divisors that a router keeps now and did not keep before, and the reverse."""
    was, now = kept_divisors(before), kept_divisors(after)
    return tuple(now - was), tuple(was - now)


@lru_cache(maxsize=4_096)
def kept_divisors(taken: Divisors) -> frozenset[int]:
    """What a router keeps of the divisors that are taken on one channel, over all modes."""
    return frozenset(every for own in modal_divisors(dict(taken)).values() for every in own)


def _taken(carriage: Carriage, variable_id: int) -> Divisors:
    stream = carriage.streams.get(variable_id)
    return () if stream is None else stream.taken
