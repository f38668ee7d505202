"""Replay of archived events: with their own stamps, at a chosen speed, below all live traffic.

Each run is an end-point of its own (`c1/replay/<run>`), so that its variables are new ones and no
router takes the second replay of an hour for copies of the first. Pacing is by the steady clock. A
replay that falls behind, because the archive is slow or the process was stopped, continues later
and never faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from math import ceil
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import numpy as np

from gridstat.model.errors import Misuse
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import REPLAY_SPEED_MAX, BuiltinType, EventFlag, TimeQuality
from gridstat.net.clock import SystemClock

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterable, Iterator

    import pyarrow as pa
    from numpy.typing import NDArray

    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication
    from gridstat.model.rate_law import Period
    from gridstat.net.clock import Clock

TICK_NS: Final = 10_000_000
BEHIND_NS_MAX: Final = 250_000_000
"""Largest delay that is caught up; a router takes no more than a second's events at once."""
EVENTS_PER_S_MAX: Final = 200_000
TELL_NS: Final = 1_000_000_000
SPEED_MIN: Final = 0.01
KINDS: Final = tuple(BuiltinType)
QUALITY_BITS: Final = 0b11
FLAG_BITS: Final = int(EventFlag.SUBSTITUTED | EventFlag.TEST)


class ReplayedVariable(Protocol):
    """Facts about a variable that are needed to publish it again."""

    @property
    def name(self) -> str: ...
    @property
    def value_type(self) -> str: ...
    @property
    def period(self) -> Period: ...
    @property
    def phase_ns(self) -> int: ...
    @property
    def streams(self) -> tuple[int, ...]: ...


@dataclass(slots=True)
class ReplayTally:
    """Counts of a replay so far; every event that was read is in one of the first three."""

    sent: int = 0
    not_sent: int = 0
    """No edge was reachable."""
    skipped: int = 0
    """Events of variables that cannot be published: records, and types that changed."""
    at_ns: int = 0
    """The stamp up to which events have been replayed."""
    delayed_s: float = 0.0
    """Delay behind a replay at full speed."""
    is_whole: bool = False
    variables: int = 0
    skipped_names: list[str] = field(default_factory=list)


class _Events(NamedTuple):
    """Events of one batch that can be published, by stamp; `kinds` are indices in `KINDS`."""

    publications: NDArray[Any]
    kinds: NDArray[Any]
    created_ns: NDArray[Any]
    flags: NDArray[Any]
    values: NDArray[Any]
    words: NDArray[Any]

    def cut(self, first: int, last: int) -> _Events:
        return _Events(*(column[first:last] for column in self))

    def where(self, wanted: NDArray[np.bool_]) -> _Events:
        return _Events(*(column[wanted] for column in self))

    def column(self, kind: BuiltinType) -> NDArray[Any]:
        """Their values, all of this type."""
        if kind is BuiltinType.FLOAT64:
            return self.values
        return self.words.astype(bool) if kind is BuiltinType.BOOL else self.words


def check_speed(speed: float) -> float:
    """The speed, if it is one: 1 as it was, 10 ten times as fast."""
    if not SPEED_MIN <= speed <= REPLAY_SPEED_MAX:
        raise Misuse(
            f"a speed of {speed}", hint=f"choose one from {SPEED_MIN} to {REPLAY_SPEED_MAX}"
        )
    return speed


class ReplayPublisher:
    """Registers the variables of one run, then sends batches of their events in time."""

    def __init__(
        self,
        grid: Connection,
        speed: float,
        *,
        clock: Clock | None = None,
        events_per_s_max: int = EVENTS_PER_S_MAX,
    ) -> None:
        self.tally = ReplayTally()
        self._grid = grid
        self._speed = check_speed(speed)
        self._clock = clock or SystemClock()
        self._events_per_tick = max(1, events_per_s_max * TICK_NS // NS_PER_S)
        self._of_stream: dict[int, Publication] = {}
        self._begun: tuple[int, int] | None = None

    def register(self, variables: Iterable[ReplayedVariable]) -> list[str]:
        """Publish them below the run's own name; their new names. Raises what the cloud refuses."""
        kinds = {kind.value: kind for kind in BuiltinType}
        found = sorted(variables, key=_terms)
        self.tally.skipped_names = [one.name for one in found if one.value_type not in kinds]
        names: list[str] = []
        for (kind, period, phase_ns), some in groupby(found, key=_exact_terms):
            group = list(some)
            if kind not in kinds:
                continue
            published = self._grid.publish_many(
                [_below_the_cloud(one.name) for one in group],
                kinds[kind],
                period=period,
                phase_ns=phase_ns,
                replay_speed=ceil(self._speed),
            )
            for one, publication in zip(group, published, strict=True):
                self._of_stream.update(dict.fromkeys(one.streams, publication))
                names.append(publication.name)
        self.tally.variables = len(names)
        return names

    def run(
        self,
        batches: Iterable[pa.RecordBatch],
        stop: threading.Event,
        on_progress: Callable[[ReplayTally], object] = lambda _: None,
    ) -> ReplayTally:
        """Send batches, which are in the order of stamps, until they end or `stop` is set.

        Their columns are stream, created_ns, flags, value and word.
        """
        told_ns = self._clock.steady_ns()
        for batch in batches:
            for due in self._ticks(self._known(batch), stop):
                self._send(due)
                now_ns = self._clock.steady_ns()
                if now_ns - told_ns >= TELL_NS:
                    told_ns = now_ns
                    on_progress(self.tally)
            if stop.is_set():
                return self.tally
        self.tally.is_whole = True
        on_progress(self.tally)
        return self.tally

    def _known(self, batch: pa.RecordBatch) -> _Events:
        """The events of variables that are registered; others are counted as skipped."""
        streams, places = np.unique(batch.column("stream").to_numpy(), return_inverse=True)
        found = [self._of_stream.get(int(stream)) for stream in streams]
        kinds = [-1 if one is None else KINDS.index(one.variable.value_type) for one in found]
        events = _Events(
            np.array([*found, None], dtype=object)[places],
            np.array(kinds, dtype=np.int8)[places],
            batch.column("created_ns").to_numpy(),
            batch.column("flags").to_numpy(),
            batch.column("value").to_numpy(zero_copy_only=False),
            batch.column("word").to_numpy(),
        )
        is_known = events.kinds >= 0
        if is_known.all():
            return events
        self.tally.skipped += int(np.count_nonzero(~is_known))
        return events.where(is_known)

    def _ticks(self, events: _Events, stop: threading.Event) -> Iterator[_Events]:
        """Yield the events that are due, tick by tick."""
        first, count = 0, len(events.created_ns)
        while first < count and not stop.is_set():
            due_ns = self._due_ns(int(events.created_ns[first]))
            last = int(np.searchsorted(events.created_ns, due_ns, side="right"))
            last = min(last, first + self._events_per_tick)
            if last > first:
                yield events.cut(first, last)
                first = last
            self._sleep(stop)

    def _due_ns(self, next_ns: int) -> int:
        """Up to which stamp events are due; the first event begins the count of time."""
        now_ns = self._clock.steady_ns()
        if self._begun is None:
            self._begun = now_ns, next_ns
        began_ns, stamp_ns = self._begun
        due_ns = stamp_ns + int((now_ns - began_ns) * self._speed)
        behind_ns = int((due_ns - next_ns) / self._speed)
        if behind_ns > BEHIND_NS_MAX:
            late_ns = behind_ns - BEHIND_NS_MAX
            self._begun = began_ns + late_ns, stamp_ns
            self.tally.delayed_s += late_ns / NS_PER_S
            due_ns -= int(late_ns * self._speed)
        return due_ns

    def _sleep(self, stop: threading.Event) -> None:
        stop.wait((TICK_NS - self._clock.steady_ns() % TICK_NS) / NS_PER_S)

    def _send(self, due: _Events) -> None:
        is_plain = (due.flags & (QUALITY_BITS | FLAG_BITS)) == 0
        sent = 0
        for number, kind in enumerate(KINDS):
            some = due.where(is_plain & (due.kinds == number))
            if len(some.kinds):
                column = some.column(kind)
                sent += self._grid.send_many(some.publications.tolist(), column, some.created_ns)
        for at in np.flatnonzero(~is_plain).tolist():
            sent += _send_one(due.cut(at, at + 1))
        self.tally.sent += sent
        self.tally.not_sent += len(due.kinds) - sent
        self.tally.at_ns = int(due.created_ns[-1])


def _send_one(event: _Events) -> bool:
    """Send an event with the original flags of its stamp and value."""
    publication: Publication = event.publications[0]
    byte = int(event.flags[0])
    return publication.send(
        event.column(KINDS[event.kinds[0]])[0].item(),
        created_ns=int(event.created_ns[0]),
        time_quality=TimeQuality(byte & QUALITY_BITS),
        flags=EventFlag(byte & FLAG_BITS),
    )


def run_name(cloud: str, run: str) -> str:
    """The end-point of one run: `c1/replay/1700000000`."""
    return f"{cloud}/replay/{run}"


def _below_the_cloud(name: str) -> str:
    return name.partition("/")[2] or name


def _exact_terms(variable: ReplayedVariable) -> tuple[str, Period, int]:
    return variable.value_type, variable.period, variable.phase_ns


def _terms(variable: ReplayedVariable) -> tuple[str, int, int, int, str]:
    period = variable.period
    phase_ns = variable.phase_ns
    return variable.value_type, period.seconds, period.per_seconds, phase_ns, variable.name
