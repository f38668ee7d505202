"""Cost of a variable for the divisors at which it is taken, computed once for each.

Variables of one rate share the computed values, and most clouds have few different rates.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from gridstat.broker.capacity.bursts import phase_class
from gridstat.broker.capacity.charges import Amount, event_bytes, event_rate, shares_of
from gridstat.broker.interning import same

if TYPE_CHECKING:
    from collections.abc import Mapping
    from fractions import Fraction

    from gridstat.broker.capacity.charges import Divisors
    from gridstat.model.status import StatusVariable

ChargeChange: TypeAlias = tuple[int, Amount | None, Amount | None]
"""Mode, the old charge and the new charge."""
_CACHED_MAX: Final = 256


class Price:
    """Cost of events of one rate; `event_bytes` is the size of one event on a channel."""

    __slots__ = ("_byte_changes", "_bytes", "_rate_changes", "_rates", "event_rate")

    def __init__(self, event_rate: Fraction) -> None:
        self.event_rate = event_rate
        self._rates: dict[Divisors, Mapping[int, Amount]] = {}
        self._bytes: dict[tuple[int, Divisors], Mapping[int, Amount]] = {}
        self._rate_changes: dict[tuple[Divisors, Divisors], tuple[ChargeChange, ...]] = {}
        self._byte_changes: dict[tuple[Divisors, Divisors, int], tuple[ChargeChange, ...]] = {}

    def events_per_s(self, taken: Divisors) -> Mapping[int, Amount]:
        """Return the events a second that a router or channel carries, by mode."""
        found = self._rates.get(taken)
        if found is None:
            _evict_if_full(self._rates)
            found = self._rates[taken] = {
                mode: Amount(share * self.event_rate) for mode, share in shares_of(taken).items()
            }
        return found

    def bytes_per_s(self, taken: Divisors, event_bytes: int) -> Mapping[int, Amount]:
        """Return the bytes a second that a channel carries, by mode."""
        found = self._bytes.get((event_bytes, taken))
        if found is None:
            _evict_if_full(self._bytes)
            found = self._bytes[event_bytes, taken] = {
                mode: Amount(rate.value * event_bytes)
                for mode, rate in self.events_per_s(taken).items()
            }
        return found

    def rate_changes(self, before: Divisors, after: Divisors) -> tuple[ChargeChange, ...]:
        """Return the changed charges in events a second after a change of divisors."""
        found = self._rate_changes.get((before, after))
        if found is None:
            _evict_if_full(self._rate_changes)
            found = _changed_charges(self.events_per_s(before), self.events_per_s(after))
            self._rate_changes[before, after] = found
        return found

    def byte_changes(
        self, before: Divisors, after: Divisors, event_bytes: int
    ) -> tuple[ChargeChange, ...]:
        """Return the changed charges in bytes a second, on a channel."""
        found = self._byte_changes.get((before, after, event_bytes))
        if found is None:
            _evict_if_full(self._byte_changes)
            found = _changed_charges(
                self.bytes_per_s(before, event_bytes), self.bytes_per_s(after, event_bytes)
            )
            self._byte_changes[before, after, event_bytes] = found
        return found


class StreamCost:
    """Cost of one variable: the price of its rate, its bytes on a channel, and its phase.

    A replayed variable is charged to routers only, and apart from the reserved load.
    """

    __slots__ = ("is_replay", "phase", "price", "variable")

    def __init__(self, variable: StatusVariable) -> None:
        self.variable = variable
        self.is_replay = variable.is_replay
        self.price = price_of(event_rate(variable))
        self.phase = same(phase_class(variable))

    def event_bytes(self, mtu_bytes: int, *, is_ipv6: bool = False, is_sealed: bool = False) -> int:
        """Return the bytes of one event on a channel of this MTU."""
        return event_bytes(self.variable, mtu_bytes, is_ipv6=is_ipv6, is_sealed=is_sealed)


@lru_cache(maxsize=1_024)
def price_of(event_rate: Fraction) -> Price:
    return Price(event_rate)


def _changed_charges(
    old: Mapping[int, Amount], new: Mapping[int, Amount]
) -> tuple[ChargeChange, ...]:
    return tuple(
        (mode, was, now)
        for mode in sorted(old.keys() | new.keys())
        if (was := old.get(mode)) is not (now := new.get(mode))
        and (was is None or now is None or was.value != now.value)
    )


def _evict_if_full(known: dict[Any, Any]) -> None:
    if len(known) >= _CACHED_MAX:
        known.clear()
