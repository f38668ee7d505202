"""A channel's account where a million variables may be charged: those alike share what is known.

Most variables are published as often and are as large as many others, and are taken alike. A stream
is therefore one immutable value for all of its kind, and a variable costs a place in a dictionary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.accounts import Carriage, Stream, burst_modes
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT
from gridstat.broker.capacity.tariffs import Tariff

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.broker.capacity.charges import Divisors
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable

KINDS_MAX: Final = 65_536

Counts = tuple[tuple[int, int, int], ...]
"""Mode, divisor and how many take it so, ascending."""
Kind = tuple[object, ...]
"""All of a variable that decides what it costs."""


class SharedStream(Stream):
    """Never changed once it is made: another count is another stream."""

    __slots__ = ("count_of", "kind")

    def __init__(self, tariff: Tariff, carriage: Carriage, kind: Kind, count_of: Counts) -> None:
        super().__init__(tariff, carriage.channel)
        self.kind = kind
        self.count_of = count_of
        for mode, every, _ in count_of:
            self.counts.add({mode: every})
        self.taken = self.counts.taken()
        self.burst_modes = burst_modes(self.counts.modes())


class SharedCarriage(Carriage):
    """Takes and gives back by variable; every number is as if each had a stream of its own."""

    __slots__ = ("_known",)

    def __init__(self, channel: EventChannel) -> None:
        super().__init__((), MODE_SETS_DEFAULT, channel)
        self._known: dict[tuple[Kind, Counts], SharedStream] = {}

    def take(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """One more contract takes the variable here; whether that changes any number."""
        number = variable.variable_id
        before = self.streams.get(number)
        after = self._with(variable, before, everys, 1)
        assert after is not None
        self.streams[number] = after
        return self._pass(before, after)

    def give_back(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """Exactly undo `take` of the same."""
        number = variable.variable_id
        before = self.streams[number]
        after = self._with(variable, before, everys, -1)
        if after is None:
            del self.streams[number]
        else:
            self.streams[number] = after
        return self._pass(before, after)

    def _with(
        self, variable: StatusVariable, before: Stream | None, everys: Mapping[int, int], by: int
    ) -> SharedStream | None:
        counts: dict[tuple[int, int], int] = {}
        if before is not None:
            assert isinstance(before, SharedStream)
            counts = {(mode, every): count for mode, every, count in before.count_of}
            kind = before.kind
        else:
            kind = _kind(variable)
        for mode, every in everys.items():
            counts[mode, every] = counts.get((mode, every), 0) + by
        key = (
            kind,
            tuple((mode, every, count) for (mode, every), count in sorted(counts.items()) if count),
        )
        if not key[1]:
            return None
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= KINDS_MAX:
                self._known.clear()
            found = self._known[key] = SharedStream(Tariff(variable), self, *key)
        return found

    def _pass(self, before: Stream | None, after: Stream | None) -> bool:
        """Charge the one instead of the other."""
        some = after or before
        assert some is not None
        if some.tariff.is_replay:
            return False
        nothing: Divisors = ()
        was = nothing if before is None else before.taken
        now = nothing if after is None else after.taken
        steps = some.tariff.price.byte_steps(was, now, some.event_bytes)
        for mode, old, new in steps:
            self.bytes.replace(mode, old, new)
        had = () if before is None else before.burst_modes
        has = () if after is None else after.burst_modes
        if had == has:
            return bool(steps)
        if has:
            self.burst.add(some.tariff.phase, some.event_bytes, has)
        if had:
            self.burst.remove(some.tariff.phase, some.event_bytes, had)
        return True


def _kind(variable: StatusVariable) -> Kind:
    return (
        variable.period,
        variable.interval_ns_min,
        variable.replay_speed,
        variable.phase_ns,
        variable.option_count,
    )
