"""Commands in, commits out: with a stand-in that records, and with the core itself."""

from __future__ import annotations

import struct

import pytest

from gridstat.core._core import Core
from gridstat.core.rows import Limits, Route, Row, Term
from gridstat.model.errors import UnknownName
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import StatusEvent
from gridstat.net.codec.datagram import decode_datagram, encode_datagram
from gridstat.net.codec.event import encode_event
from gridstat.router import CarriedVariable, ChannelSpec, Path, StatusRouter, TableChange
from tests.unit.router.recording_core import RecordingCore

MS = 1_000_000
NOW_NS = 1_700_000_000_000_000_000
VOLTAGE, ANGLE = VariableId(1), VariableId(2)
EAST, WEST = ChannelId(7), ChannelId(8)
PMU = ChannelId(3)
FIRST, SECOND, THIRD = PathId(1), PathId(2), PathId(3)
TEN_MS = Period(1, 100)


class HandClock:
    """A clock that advances only on request."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def recording() -> RecordingCore:
    return RecordingCore()


@pytest.fixture
def router(recording: RecordingCore, clock: HandClock) -> StatusRouter:
    router = StatusRouter("west", recording, clock_ns=clock)
    router.open_channel(ChannelSpec(EAST))
    router.open_channel(ChannelSpec(WEST))
    return router


def carried(variable_id: VariableId) -> CarriedVariable:
    return CarriedVariable(variable_id, TEN_MS)


def test_a_lone_command_is_committed_at_once_and_a_flood_after_it_in_one(
    router: StatusRouter, recording: RecordingCore, clock: HandClock
) -> None:
    def command(number: int) -> None:
        variable_id = VariableId(number)
        path = {PathId(number): Path(variable_id, EAST)}
        router.change(TableChange(carried=(carried(variable_id),), set_up=path))

    command(1)
    assert router.commit_due() == 1
    for number in range(2, 1_001):
        command(number)
    assert router.commit_due() == 0
    clock.now_ns += 10 * MS
    assert router.wait_s() == 0
    assert router.commit_due() == 999
    assert [len(upserts) for upserts, _ in recording.commits] == [1, 999]
    assert router.wait_s() is None


def test_only_touched_rows_are_committed(router: StatusRouter, recording: RecordingCore) -> None:
    both = (carried(VOLTAGE), carried(ANGLE))
    router.change(TableChange(carried=both, set_up={FIRST: Path(VOLTAGE, EAST, 2)}))
    router.commit_all()
    router.change(TableChange(set_up={SECOND: Path(ANGLE, WEST)}))
    router.commit_all()
    row = Row(ANGLE, TEN_MS, routes=(Route(WEST, (Term(1),)),))
    assert recording.commits[-1] == ((row,), ())


def test_a_path_to_a_channel_that_is_not_open_is_refused_and_changes_nothing(
    router: StatusRouter, recording: RecordingCore
) -> None:
    change = TableChange(carried=(carried(VOLTAGE),), set_up={FIRST: Path(VOLTAGE, ChannelId(99))})
    with pytest.raises(UnknownName, match="has not opened"):
        router.change(change)
    assert router.commit_all() == 0
    assert recording.commits == []


def test_becoming_another_table_touches_only_the_differences(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.become([carried(VOLTAGE), carried(ANGLE)], {FIRST: Path(VOLTAGE, EAST)})
    router.commit_all()
    router.become([carried(VOLTAGE)], {FIRST: Path(VOLTAGE, EAST)})
    router.commit_all()
    assert recording.commits[-1] == ((), (ANGLE,))
    router.become([carried(VOLTAGE)], {FIRST: Path(VOLTAGE, EAST)})
    assert router.commit_all() == 0


def test_what_a_new_plan_does_not_name_is_closed_after_the_commit(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.open_source(PMU, is_publisher=True)
    router.change(TableChange(carried=(carried(VOLTAGE),), set_up={FIRST: Path(VOLTAGE, EAST)}))
    router.keep_only(channels=frozenset({EAST}), sources=frozenset())
    assert recording.calls[-3:] == ["commit", f"close channel {WEST}", f"close source {PMU}"]


def test_a_source_is_opened_once(router: StatusRouter, recording: RecordingCore) -> None:
    router.open_source(PMU, is_publisher=True)
    router.open_source(PMU, is_publisher=True)
    assert recording.calls.count(f"open source {PMU} True 0") == 1


def test_a_channel_that_leads_elsewhere_is_opened_anew(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.open_channel(ChannelSpec(EAST))
    router.open_channel(ChannelSpec(EAST, address=("127.0.0.1", 5_000, 5_001)))
    assert recording.calls[-2:] == [f"close channel {EAST}", f"open channel {EAST}"]


def test_draining_refuses_what_is_new_and_counts_what_is_queued(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.open_source(PMU)
    recording.queued = 3
    router.refuse_new()
    assert recording.calls[-1] == f"close source {PMU}"
    assert router.queued_events() == 6


def test_a_router_that_started_is_stopped_before_it_is_closed(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.start()
    router.close()
    assert recording.calls[-3:] == ["start", "stop", "close"]


def test_what_the_kernel_lost_stands_beside_the_counters(router: StatusRouter) -> None:
    assert router.counters() == {"in": 0, "kernel_dropped": 4}


class CoreInHand:
    """A router around the real core, fed by hand through memory channels."""

    def __init__(self) -> None:
        limits = Limits(variables_max=64, rings_max=4, channels_max=8, pool_small=64, pool_large=4)
        self.core = Core(limits)
        self.router = StatusRouter("west", self.core, clock_ns=HandClock())
        self.router.open_source(PMU, is_publisher=True)
        for channel_id in (EAST, WEST):
            self.router.open_channel(ChannelSpec(channel_id))

    def publish(self, slot: int, *variable_ids: VariableId) -> None:
        created_ns = NOW_NS + slot * 10 * MS
        events = [
            encode_event(StatusEvent(created_ns, variable_id, struct.pack(">d", 60.0)))
            for variable_id in variable_ids
        ]
        raw = encode_datagram(PMU, slot + 1, events=events)
        self.core.inject(raw, now_ns=created_ns)

    def delivered(self, channel_id: ChannelId) -> list[tuple[int, int]]:
        """(slot, variable) of all that left on a channel since the last call."""
        return [
            ((event.created_ns - NOW_NS) // (10 * MS), event.variable_id)
            for _, raw in self.core.take_output(channel_id)
            for event in decode_datagram(raw).events
        ]


@pytest.mark.feature("S3-40", "S3-55")
def test_paths_come_and_go_without_loss_on_other_variables() -> None:
    """A stub broker commands; the router computes no path itself."""
    grid = CoreInHand()
    both = (
        CarriedVariable(VOLTAGE, TEN_MS, source=PMU),
        CarriedVariable(ANGLE, TEN_MS, source=PMU),
    )
    grid.router.change(TableChange(carried=both, set_up={FIRST: Path(VOLTAGE, EAST)}))
    grid.router.commit_all()
    voltage: list[int] = []
    angle: list[int] = []
    for slot in range(30):
        if slot == 10:
            grid.router.change(TableChange(set_up={SECOND: Path(ANGLE, EAST, 5)}))
            grid.router.commit_all()
        if slot == 20:
            grid.router.change(TableChange(torn_down=(SECOND,)))
            grid.router.commit_all()
        grid.publish(slot, VOLTAGE, ANGLE)
        for found, variable_id in grid.delivered(EAST):
            (voltage if variable_id == VOLTAGE else angle).append(found)
    assert voltage == list(range(30))
    assert angle == [10, 15]
    grid.router.close()


@pytest.mark.feature("S3-3", "S0-66")
def test_two_intervals_on_one_channel_are_one_copy_of_their_union() -> None:
    grid = CoreInHand()
    paths = {
        FIRST: Path(VOLTAGE, EAST, 10),
        SECOND: Path(VOLTAGE, EAST, 4),
        THIRD: Path(VOLTAGE, WEST, 10),
    }
    grid.router.become([CarriedVariable(VOLTAGE, TEN_MS, source=PMU)], paths)
    grid.router.commit_all()
    for slot in range(40):
        grid.publish(slot, VOLTAGE)
    east = [slot for slot, _ in grid.delivered(EAST)]
    assert east == [slot for slot in range(40) if slot % 10 == 0 or slot % 4 == 0]
    assert [slot for slot, _ in grid.delivered(WEST)] == [0, 10, 20, 30]
    counters = grid.router.channel_counters()[EAST]
    assert counters["due"] == counters["sent"] == len(east)
    grid.router.close()
