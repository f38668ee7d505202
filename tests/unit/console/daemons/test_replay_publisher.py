"""A replay in time: what is sent when, at which speed, and never faster after a pause."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest

from gridstat.console.daemons.replay_publisher import ReplayPublisher, ReplayTally, run_name
from gridstat.model.errors import Misuse
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, StatusVariable, TimeQuality

if TYPE_CHECKING:
    import threading
    from collections.abc import Sequence

    from gridstat.endpoint.connection import Connection

MS = 1_000_000
S = 1_000 * MS
PAST_NS = 1_600_000_000 * S
RUN = run_name("c1", "7")
HUNDRED = Period(1, 100)


@dataclass(frozen=True)
class Archived:
    name: str
    streams: tuple[int, ...]
    value_type: str = "float64"
    period: Period = HUNDRED
    phase_ns: int = 0


@dataclass
class PaperClock:
    """Clock and stop event in one: waiting advances it."""

    now: int = 3 * S
    stop_at: int = 1 << 62

    def steady_ns(self) -> int:
        return self.now

    def posix_ns(self) -> int:
        raise AssertionError("a replay needs no date")

    def is_set(self) -> bool:
        return self.now >= self.stop_at

    def wait(self, seconds: float) -> bool:
        self.now += round(seconds * S)
        return self.is_set()


@dataclass
class PaperPublication:
    variable: StatusVariable
    grid: PaperGrid

    @property
    def name(self) -> str:
        return self.variable.name

    def send(self, value: object, **words: Any) -> bool:
        self.grid.apart.append((self.name, value, words))
        return True


@dataclass
class PaperGrid:
    clock: PaperClock
    takes: bool = True
    published: list[StatusVariable] = field(default_factory=list)
    sent: list[tuple[int, str, object, int]] = field(default_factory=list)
    apart: list[tuple[str, object, dict[str, Any]]] = field(default_factory=list)

    def publish_many(
        self, names: Sequence[str], value_type: BuiltinType, **wishes: Any
    ) -> list[PaperPublication]:
        made = [
            StatusVariable(VariableId(0), f"{RUN}/{name}", value_type, **wishes) for name in names
        ]
        self.published += made
        return [PaperPublication(variable, self) for variable in made]

    def send_many(self, publications: Any, values: Any, created_ns: Any) -> int:
        if not self.takes:
            return 0
        for one, value, stamp in zip(publications, values.tolist(), created_ns, strict=True):
            self.sent.append((self.clock.now, one.name, value, int(stamp)))
        return len(publications)


@dataclass
class Replay:
    """One publisher on paper."""

    speed: float = 1.0
    events_per_s_max: int = 200_000

    def __post_init__(self) -> None:
        self.clock = PaperClock()
        self.grid = PaperGrid(self.clock)
        self.publisher = ReplayPublisher(
            cast("Connection", self.grid),
            self.speed,
            clock=self.clock,
            events_per_s_max=self.events_per_s_max,
        )
        self.told: list[int] = []

    def run(self, *batches: pa.RecordBatch) -> ReplayTally:
        def told(tally: ReplayTally) -> None:
            self.told.append(tally.sent)

        return self.publisher.run(batches, cast("threading.Event", self.clock), told)

    def lags_ms(self) -> list[float]:
        """Return the delay of each event after its time, counted from the first."""
        began, first = self.grid.sent[0][0], self.grid.sent[0][3]
        return [(at - began - (ns - first) / self.speed) / MS for at, _, _, ns in self.grid.sent]


def batch(slots: range, *, streams: tuple[int, ...] = (1,), flags: int = 0) -> pa.RecordBatch:
    rows = [(stream, slot) for slot in slots for stream in streams]
    word = np.array([slot for _, slot in rows])
    return pa.record_batch(
        {
            "stream": pa.array([stream for stream, _ in rows], pa.int32()),
            "created_ns": pa.array(PAST_NS + word * 10 * MS),
            "flags": pa.array([flags] * len(rows), pa.int16()),
            "value": pa.array(word.astype(float)),
            "word": pa.array(word),
        }
    )


def test_variables_are_published_below_the_run_as_replayed_ones() -> None:
    replay = Replay(2.5)
    variables = [
        Archived("c1/hill/v", (1, 4)),
        Archived("c1/hill/n", (2,), "int64"),
        Archived("c1/hill/odd", (3,), "phasor(a float32[4])"),
    ]
    names = replay.publisher.register(variables)
    assert sorted(names) == [f"{RUN}/hill/n", f"{RUN}/hill/v"]
    assert {one.replay_speed for one in replay.grid.published} == {3}
    assert replay.publisher.tally.skipped_names == ["c1/hill/odd"]


@pytest.mark.parametrize("speed", [0.5, 1, 10, 100])
def test_events_leave_in_time_at_the_chosen_speed(speed: float) -> None:
    replay = Replay(speed)
    replay.publisher.register([Archived("c1/v", (1,))])
    tally = replay.run(batch(range(300)), batch(range(300, 700)))
    assert [stamp for *_, stamp in replay.grid.sent] == [
        PAST_NS + slot * 10 * MS for slot in range(700)
    ]
    assert all(-0.001 <= lag <= 20 for lag in replay.lags_ms())
    assert (tally.sent, tally.skipped, tally.not_sent, tally.is_whole) == (700, 0, 0, True)
    assert tally.at_ns == PAST_NS + 699 * 10 * MS


def test_a_gap_of_the_archive_is_a_pause_of_the_replay() -> None:
    replay = Replay(10)
    replay.publisher.register([Archived("c1/v", (1,))])
    replay.run(batch(range(10)), batch(range(1_000, 1_010)))
    assert max(replay.lags_ms()) <= 20
    assert replay.grid.sent[-1][0] - replay.grid.sent[0][0] >= S


def test_after_a_pause_the_replay_goes_on_later_and_not_faster() -> None:
    replay = Replay(1)
    replay.publisher.register([Archived("c1/v", (1,))])

    def slow() -> Any:
        yield batch(range(100))
        replay.clock.now += 60 * S  # The archive had to be read.
        yield batch(range(100, 400))

    tally = replay.publisher.run(slow(), cast("threading.Event", replay.clock))
    at = np.array([moment for moment, *_ in replay.grid.sent])
    per_second = np.searchsorted(at, at + S) - np.arange(len(at))
    assert per_second.max() <= 100 + 26  # A second's events, and what may be caught up on.
    assert tally.delayed_s == pytest.approx(60, abs=1)
    assert tally.sent == 400


def test_no_more_events_leave_in_a_second_than_are_allowed() -> None:
    replay = Replay(1_000, events_per_s_max=1_000)
    replay.publisher.register([Archived("c1/v", (1,))])
    tally = replay.run(batch(range(3_000)))
    assert 2.9 * S <= replay.grid.sent[-1][0] - replay.grid.sent[0][0] <= 3.1 * S
    assert tally.delayed_s > 2


def test_events_of_other_types_keep_their_place_and_their_type() -> None:
    replay = Replay()
    kinds = ("float64", "int64", "bool")
    replay.publisher.register([Archived(f"c1/{k}", (n,), k) for n, k in enumerate(kinds)])
    tally = replay.run(batch(range(50), streams=(0, 1, 2, 99)))
    assert max(replay.lags_ms()) <= 20
    assert (tally.sent, tally.skipped) == (150, 50)
    assert {type(value) for _, _, value, _ in replay.grid.sent} == {float, int, bool}


def test_what_was_said_of_an_event_is_said_again() -> None:
    replay = Replay()
    replay.publisher.register([Archived("c1/v", (1,))])
    byte = int(TimeQuality.DEGRADED) | int(EventFlag.SUBSTITUTED | EventFlag.CACHED)
    assert replay.run(batch(range(1), flags=byte)).sent == 1
    ((_, value, words),) = replay.grid.apart
    assert value == 0.0
    assert words["time_quality"] is TimeQuality.DEGRADED
    assert words["flags"] is EventFlag.SUBSTITUTED


def test_events_that_no_edge_takes_are_counted() -> None:
    replay = Replay()
    replay.publisher.register([Archived("c1/v", (1,))])
    replay.grid.takes = False
    assert replay.run(batch(range(20))).not_sent == 20


def test_a_stop_ends_it_at_once_and_it_says_how_far_it_came() -> None:
    replay = Replay()
    replay.publisher.register([Archived("c1/v", (1,))])
    replay.clock.stop_at = replay.clock.now + 2 * S
    tally = replay.run(batch(range(1_000)), batch(range(1_000, 2_000)))
    assert not tally.is_whole
    assert 195 <= tally.sent <= 205
    assert replay.told


@pytest.mark.parametrize("speed", [0, -1, 1_001, float("nan")])
def test_a_speed_that_is_none_is_refused(speed: float) -> None:
    with pytest.raises(Misuse):
        ReplayPublisher(cast("Connection", None), speed)
