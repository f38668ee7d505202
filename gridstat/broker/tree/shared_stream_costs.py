"""Account of a channel on which a million variables may be charged: equal streams are shared.

Most variables have the period, size and divisors of many others. A stream is therefore one
immutable value for all variables of its kind, and a variable costs one dictionary entry.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.capacity.accounts import HopAccount, Stream, burst_modes
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT, DivisorCounts
from gridstat.broker.capacity.stream_costs import StreamCost

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.broker.capacity.charges import Divisors
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable

KINDS_MAX: Final = 65_536

Counts = tuple[tuple[int, int, int], ...]
"""Mode, divisor and number of contracts with both, ascending."""
Kind = tuple[object, ...]
"""Properties of a variable that determine its cost."""


class SharedStream(Stream):
    """Immutable stream: another count of contracts is another stream."""

    __slots__ = ("count_of", "kind")

    def __init__(
        self, stream_cost: StreamCost, carriage: HopAccount, kind: Kind, count_of: Counts
    ) -> None:
        super().__init__(stream_cost, carriage.event_bytes(stream_cost))
        self.kind = kind
        self.count_of = count_of
        self.counts = DivisorCounts(count_of)
        self.taken = self.counts.taken()
        self.burst_modes = burst_modes(self.counts.modes())


class SharedHopAccount(HopAccount):
    """Charges by variable; every sum is as if each variable had a stream of its own.

    A publisher may change its period while an earlier contract is still being released. The
    variable keeps its identifier, so contracts at the new cost have a second stream beside the
    first.
    """

    __slots__ = ("_known", "_others")

    def __init__(self, channel: EventChannel) -> None:
        super().__init__((), MODE_SETS_DEFAULT, channel)
        self._known: dict[tuple[Kind, Counts], SharedStream] = {}
        self._others: dict[int, dict[Kind, SharedStream]] = {}
        """Further streams of an identifier; one in `streams` exists while any does."""

    def take(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """Charge one more contract on the variable; return whether any sum changes."""
        return self._change(variable, everys, 1)

    def give_back(self, variable: StatusVariable, everys: Mapping[int, int]) -> bool:
        """Undo `take` with the same arguments."""
        return self._change(variable, everys, -1)

    def _change(self, variable: StatusVariable, everys: Mapping[int, int], by: int) -> bool:
        number, kind = variable.variable_id, _kind(variable)
        before = self._find(number, kind)
        assert before is not None or by > 0, f"variable {number} was not taken so"
        after = self._changed_stream(variable, before, everys, by)
        if after is not None:
            self._keep(number, after)
        else:
            self._drop(number, kind)
        return self._recharge(before, after)

    def _find(self, number: int, kind: Kind) -> SharedStream | None:
        found = self.streams.get(number)
        assert found is None or isinstance(found, SharedStream)
        if found is None or found.kind == kind:
            return found
        return self._others.get(number, {}).get(kind)

    def _keep(self, number: int, stream: SharedStream) -> None:
        first = self.streams.setdefault(number, stream)
        assert isinstance(first, SharedStream)
        if first.kind == stream.kind:
            self.streams[number] = stream
        else:
            self._others.setdefault(number, {})[stream.kind] = stream

    def _drop(self, number: int, kind: Kind) -> None:
        first, others = self.streams[number], self._others.get(number, {})
        assert isinstance(first, SharedStream)
        if first.kind != kind:
            del others[kind]
        elif others:
            self.streams[number] = others.pop(next(iter(others)))
        else:
            del self.streams[number]
        if not others:
            self._others.pop(number, None)

    def _changed_stream(
        self,
        variable: StatusVariable,
        before: SharedStream | None,
        everys: Mapping[int, int],
        by: int,
    ) -> SharedStream | None:
        counts: dict[tuple[int, int], int] = {}
        if before is not None:
            counts = {(mode, every): count for mode, every, count in before.count_of}
        for mode, every in everys.items():
            counts[mode, every] = counts.get((mode, every), 0) + by
            assert counts[mode, every] >= 0, f"divisor {every} was not taken in mode {mode}"
        key = (
            _kind(variable) if before is None else before.kind,
            tuple((mode, every, count) for (mode, every), count in sorted(counts.items()) if count),
        )
        if not key[1]:
            return None
        found = self._known.get(key)
        if found is None:
            found = SharedStream(StreamCost(variable), self, *key)
            self._remember(found)
        return found

    def _remember(self, stream: SharedStream) -> None:
        if len(self._known) >= KINDS_MAX:
            self._known.clear()
        self._known[stream.kind, stream.count_of] = stream

    def _recharge_streams(self) -> None:
        """Replace every stream by one with the present size of its events."""
        self._known.clear()
        new: dict[SharedStream, SharedStream] = {}
        counts: Counter[SharedStream] = Counter()
        places: list[dict[Any, Any]] = [self.streams, *self._others.values()]
        for place in places:
            for key, old in place.items():
                counts[old] += 1
                if old not in new:
                    new[old] = SharedStream(old.stream_cost, self, old.kind, old.count_of)
                    self._remember(new[old])
                place[key] = new[old]
        for old, count in counts.items():
            self._replace_bytes(old, new[old].event_bytes, count)

    def _recharge(self, before: Stream | None, after: Stream | None) -> bool:
        """Charge `after` instead of `before`; return whether any sum changes."""
        some = after or before
        assert some is not None
        if some.stream_cost.is_replay:
            return False
        nothing: Divisors = ()
        was = nothing if before is None else before.taken
        now = nothing if after is None else after.taken
        steps = some.stream_cost.price.byte_changes(was, now, some.event_bytes)
        for mode, old, new in steps:
            self.bytes.replace(mode, old, new)
        had = () if before is None else before.burst_modes
        has = () if after is None else after.burst_modes
        if had == has:
            return bool(steps)
        if has:
            self.burst.add(some.stream_cost.phase, some.event_bytes, has)
        if had:
            self.burst.remove(some.stream_cost.phase, some.event_bytes, had)
        return True


def _kind(variable: StatusVariable) -> Kind:
    return (
        variable.period,
        variable.interval_ns_min,
        variable.replay_speed,
        variable.phase_ns,
        variable.option_count,
    )
