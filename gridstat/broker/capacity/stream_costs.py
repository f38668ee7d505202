"""What a variable costs for any divisors at which it is taken, worked out once for each.

Variables of one rate share what has been worked out for it, and most of a cloud have one of few.
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

Step: TypeAlias = tuple[int, Amount | None, Amount | None]
"""In one mode, what was charged and what is to be charged instead."""
_KNOWN_MAX: Final = 256


class Price:
    """What events of one rate cost; `event_bytes` is what one of them takes on a channel."""

    __slots__ = ("_byte_steps", "_bytes", "_rates", "_steps", "event_rate")

    def __init__(self, event_rate: Fraction) -> None:
        self.event_rate = event_rate
        self._rates: dict[Divisors, Mapping[int, Amount]] = {}
        self._bytes: dict[tuple[int, Divisors], Mapping[int, Amount]] = {}
        self._steps: dict[tuple[Divisors, Divisors], tuple[Step, ...]] = {}
        self._byte_steps: dict[tuple[Divisors, Divisors, int], tuple[Step, ...]] = {}

    def events_per_s(self, taken: Divisors) -> Mapping[int, Amount]:
        """What a router or channel sees of them, per mode."""
        found = self._rates.get(taken)
        if found is None:
            _make_room(self._rates)
            found = self._rates[taken] = {
                mode: Amount(share * self.event_rate) for mode, share in shares_of(taken).items()
            }
        return found

    def bytes_per_s(self, taken: Divisors, event_bytes: int) -> Mapping[int, Amount]:
        """What a channel carries of them, per mode."""
        found = self._bytes.get((event_bytes, taken))
        if found is None:
            _make_room(self._bytes)
            found = self._bytes[event_bytes, taken] = {
                mode: Amount(rate.value * event_bytes)
                for mode, rate in self.events_per_s(taken).items()
            }
        return found

    def steps(self, before: Divisors, after: Divisors) -> tuple[Step, ...]:
        """What changes in events a second, where other divisors are taken than before."""
        found = self._steps.get((before, after))
        if found is None:
            _make_room(self._steps)
            found = _steps(self.events_per_s(before), self.events_per_s(after))
            self._steps[before, after] = found
        return found

    def byte_steps(self, before: Divisors, after: Divisors, event_bytes: int) -> tuple[Step, ...]:
        """The same in bytes a second, on a channel."""
        found = self._byte_steps.get((before, after, event_bytes))
        if found is None:
            _make_room(self._byte_steps)
            found = _steps(
                self.bytes_per_s(before, event_bytes), self.bytes_per_s(after, event_bytes)
            )
            self._byte_steps[before, after, event_bytes] = found
        return found


class StreamCost:
    """What one variable costs: its price, its bytes on each kind of channel, and its phase.

    A replayed one costs only routers something, apart from what is promised to others.
    """

    __slots__ = ("is_replay", "phase", "price", "variable")

    def __init__(self, variable: StatusVariable) -> None:
        self.variable = variable
        self.is_replay = variable.is_replay
        self.price = price_of(event_rate(variable))
        self.phase = same(phase_class(variable))

    def event_bytes(self, mtu_bytes: int) -> int:
        """Bytes that one event takes on a channel of this MTU."""
        return event_bytes(self.variable, mtu_bytes)


@lru_cache(maxsize=1_024)
def price_of(event_rate: Fraction) -> Price:
    return Price(event_rate)


def _steps(old: Mapping[int, Amount], new: Mapping[int, Amount]) -> tuple[Step, ...]:
    return tuple(
        (mode, was, now)
        for mode in sorted(old.keys() | new.keys())
        if (was := old.get(mode)) is not (now := new.get(mode))
        and (was is None or now is None or was.value != now.value)
    )


def _make_room(known: dict[Any, Any]) -> None:
    if len(known) >= _KNOWN_MAX:
        known.clear()
