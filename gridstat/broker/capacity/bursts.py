"""Bursts of synchronised publishers: the events that may arrive at a channel at one instant.

Admission by rate alone assumes smooth arrivals, although publishers that follow one clock send
together (S0 A28). Two variables coincide if some of their slots lie within one instant. By the
Chinese remainder theorem that is so if, and only if, their phases agree modulo the greatest common
divisor of their periods. An aperiodic variable may coincide with every other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.charges import modal_total
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Collection

    from gridstat.model.status import StatusVariable

INSTANT_NS: Final = 1_000_000
"""Events due within one millisecond count as simultaneous, because clocks and sends jitter."""


class PhaseClass(NamedTuple):
    """Variables of one period with phases in one instant; aperiodic ones have `per_seconds` 0."""

    seconds: int
    per_seconds: int
    phase_ns: int


def phase_class(variable: StatusVariable) -> PhaseClass:
    period = variable.period
    if period is None:
        return PhaseClass(0, 0, 0)
    phase = variable.phase_ns * period.per_seconds % (period.seconds * NS_PER_S)
    phase_ns = phase // period.per_seconds
    # Round down to whole instants, so that odd phases do not create a class for every variable.
    return PhaseClass(period.seconds, period.per_seconds, phase_ns - phase_ns % INSTANT_NS)


@lru_cache(maxsize=65_536)
def may_meet(one: PhaseClass, other: PhaseClass) -> bool:
    """Return whether slots of both classes may ever lie within one instant.

    Phases are rounded down to whole instants, so those of one instant differ by less than two.
    """
    if not one.per_seconds or not other.per_seconds:
        return True
    scale = one.per_seconds * other.per_seconds
    common = NS_PER_S * gcd(one.seconds * other.per_seconds, other.seconds * one.per_seconds)
    apart = abs(one.phase_ns - other.phase_ns) * scale % common
    return min(apart, common - apart) < 2 * INSTANT_NS * scale


@dataclass(slots=True)
class _PhaseLoad:
    """Load of one phase class on a channel: its own, and in total with all classes it may meet."""

    meets: list[PhaseClass]
    own_events: dict[int, int] = field(default_factory=dict)
    own_bytes: dict[int, int] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)
    bytes: dict[int, int] = field(default_factory=dict)


class Burst:
    """Largest burst that may arrive at one channel, over all phase classes and active modes.

    The sum over a class and all classes that it may meet is an upper bound, because those classes
    need not meet each other. In the usual grid, with few different phases, the bound is exact.
    """

    __slots__ = ("_loads", "_mode_sets", "_worst")

    def __init__(self, mode_sets: tuple[frozenset[int], ...]) -> None:
        self._mode_sets = mode_sets
        self._loads: dict[PhaseClass, _PhaseLoad] = {}
        self._worst: tuple[int, int] | None = (0, 0)

    def add(self, phase: PhaseClass, event_bytes: int, modes: Collection[int]) -> None:
        load = self._loads.get(phase) or self._open(phase)
        for mode in modes:
            _count(load.own_events, mode, 1)
            _count(load.own_bytes, mode, event_bytes)
        self._spread(load, modes, 1, event_bytes)

    def remove(self, phase: PhaseClass, event_bytes: int, modes: Collection[int]) -> None:
        load = self._loads[phase]
        for mode in modes:
            _count(load.own_events, mode, -1)
            _count(load.own_bytes, mode, -event_bytes)
        self._spread(load, modes, -1, -event_bytes)
        if not load.own_events:
            self._close(phase)

    def resize(self, phase: PhaseClass, more_bytes: int, modes: Collection[int]) -> None:
        """Change the bytes of a class; its events stay."""
        load = self._loads[phase]
        self._worst = None
        for mode in modes:
            _count(load.own_bytes, mode, more_bytes)
            for met in load.meets:
                _count(self._loads[met].bytes, mode, more_bytes)

    @property
    def events(self) -> int:
        return self.worst()[0]

    @property
    def bytes(self) -> int:
        return self.worst()[1]

    def worst(self) -> tuple[int, int]:
        """Return the most events and the most bytes of any burst."""
        if self._worst is None:
            loads = self._loads.values()
            self._worst = (
                max((modal_total(load.events, self._mode_sets) for load in loads), default=0),
                max((modal_total(load.bytes, self._mode_sets) for load in loads), default=0),
            )
        return self._worst

    def _spread(
        self, load: _PhaseLoad, modes: Collection[int], events: int, event_bytes: int
    ) -> None:
        before = self._worst
        self._worst = None
        worst_events, worst_bytes = before or (0, 0)
        is_known = before is not None and events > 0  # Only a class that grew can be the new worst.
        for met in load.meets:
            other = self._loads[met]
            for mode in modes:
                _count(other.events, mode, events)
                _count(other.bytes, mode, event_bytes)
            if is_known:
                worst_events = max(worst_events, modal_total(other.events, self._mode_sets))
                worst_bytes = max(worst_bytes, modal_total(other.bytes, self._mode_sets))
        if is_known:
            self._worst = (worst_events, worst_bytes)

    def _open(self, phase: PhaseClass) -> _PhaseLoad:
        load = self._loads[phase] = _PhaseLoad(meets=[phase])
        for other_phase, other in self._loads.items():
            if other is not load and may_meet(phase, other_phase):
                other.meets.append(phase)
                load.meets.append(other_phase)
                for mode, events in other.own_events.items():
                    _count(load.events, mode, events)
                    _count(load.bytes, mode, other.own_bytes[mode])
        return load

    def _close(self, phase: PhaseClass) -> None:
        for met in self._loads.pop(phase).meets:
            if met != phase:
                self._loads[met].meets.remove(phase)


def _count(counts: dict[int, int], mode: int, by: int) -> None:
    if number := counts.get(mode, 0) + by:
        counts[mode] = number
    else:
        del counts[mode]
