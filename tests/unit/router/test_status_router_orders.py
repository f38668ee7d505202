"""Order in which a broker's changes reach the core, so that no event is lost."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LimitReached, Misuse
from gridstat.model.rate_law import Period
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    ChannelSeed,
    PathOrder,
    SourceOrder,
    VariableOrder,
)
from gridstat.router import StatusRouter
from gridstat.router.agent_events import SourceReceived, SourceSilent, WaterMarkCrossed
from tests.unit.router.recording_core import RecordingCore

MS = 1_000_000
TEN_MS = Period(1, 100)


class HandClock:
    """A clock that advances only on request."""

    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def channel(channel_id: int, *, bandwidth_bytes_per_s: int = 0) -> ChannelOrder:
    return ChannelOrder(
        channel_id=channel_id,
        to="c1/e1",
        host="127.0.0.1",
        data_port=4_000 + channel_id,
        urgent_port=5_000 + channel_id,
        bandwidth_bytes_per_s=bandwidth_bytes_per_s,
        queue_events_max=100,
    )


def variable(variable_id: int) -> VariableOrder:
    return VariableOrder(variable_id=variable_id, period=TEN_MS, keeps_newest=True)


def path(path_id: int, *, of: int, to: int) -> PathOrder:
    return PathOrder(path_id=path_id, variable_id=of, channel_id=to)


FIRST = ChangeTable(
    term=1,
    number=1,
    channels=(channel(7), channel(8, bandwidth_bytes_per_s=1_000)),
    sources=(SourceOrder(channel_id=3, sender="c1/w0", silent_ms_max=100),),
    variables=(variable(1), variable(2)),
    paths=(path(101, of=1, to=7), path(102, of=2, to=8)),
)


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def recording() -> RecordingCore:
    return RecordingCore()


@pytest.fixture
def router(recording: RecordingCore, clock: HandClock) -> StatusRouter:
    router = StatusRouter("c1/i0", recording, clock_ns=clock)
    router.apply(FIRST)
    router.commit_due()
    clock.now_ns += 20 * MS
    return router


def routes(recording: RecordingCore) -> dict[int, list[int]]:
    """Return the channels of each variable in the last commit."""
    upserts, _ = recording.commits[-1]
    return {row.variable_id: [route.channel_id for route in row.routes] for row in upserts}


@pytest.mark.feature("S0-12")
def test_a_router_opens_exactly_what_it_is_told_before_any_row_leads_there(
    router: StatusRouter, recording: RecordingCore
) -> None:
    assert recording.calls == [
        "open channel 7",
        "open channel 8",
        "open source 3 False 0",
        "commit",
    ]
    assert routes(recording) == {1: [7], 2: [8]}
    assert all(row.keeps_newest for row in recording.commits[-1][0])
    assert router.wait_s() is None
    assert router.newest(5) == b"\x05"


def test_a_channel_closes_only_after_the_commit_that_leaves_it(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.apply(
        ChangeTable(term=1, number=2, torn_down=(101,), dropped=(1,), closed_channels=(7,))
    )
    assert recording.calls[-1] == "commit"
    assert router.commit_due() == 1
    assert recording.calls[-2:] == ["commit", "close channel 7"]
    assert recording.commits[-1] == ((), (1,))


def test_a_channel_without_rows_closes_at_once(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.apply(ChangeTable(term=1, number=2, channels=(channel(9),)))
    router.apply(ChangeTable(term=1, number=3, closed_channels=(9,), closed_sources=(3,)))
    assert recording.calls[-3:] == ["open channel 9", "close source 3", "close channel 9"]
    assert router.wait_s() is None


def test_a_refused_change_leaves_everything_as_it_was(
    router: StatusRouter, recording: RecordingCore
) -> None:
    before = list(recording.calls)
    bad = ChangeTable(
        term=1, number=2, channels=(channel(9),), torn_down=(101,), paths=(path(5, of=77, to=9),)
    )
    with pytest.raises(Misuse):
        router.apply(bad)
    assert router.commit_all() == 0
    assert recording.calls == before


def test_a_path_may_move_to_another_variable_and_channel_in_one_change(
    router: StatusRouter, recording: RecordingCore
) -> None:
    router.apply(
        ChangeTable(
            term=1,
            number=2,
            dropped=(1,),
            closed_channels=(7,),
            channels=(channel(9),),
            variables=(variable(3),),
            paths=(path(101, of=3, to=9),),
        )
    )
    router.commit_due()
    assert routes(recording) == {3: [9]}
    assert recording.commits[-1][1] == (1,)
    assert recording.calls[-1] == "close channel 7"


@pytest.mark.feature("S3-40")
def test_a_whole_table_touches_only_what_differs(
    router: StatusRouter, recording: RecordingCore
) -> None:
    whole = ChangeTable(
        term=1,
        number=2,
        begins_anew=True,
        channels=(channel(7), channel(9)),
        variables=(variable(1), variable(3)),
        paths=(path(101, of=1, to=7), path(103, of=3, to=9)),
    )
    router.apply(whole)
    assert router.commit_due() == 2
    assert routes(recording) == {3: [9]}
    assert recording.commits[-1][1] == (2,)
    assert recording.calls[-4:] == ["close source 3", "open channel 9", "commit", "close channel 8"]
    router.apply(whole)
    assert router.wait_s() is None


def test_a_row_waits_for_a_channel_that_cannot_be_reached_yet(
    router: StatusRouter, recording: RecordingCore, clock: HandClock
) -> None:
    recording.unreachable.add(9)
    router.apply(
        ChangeTable(term=1, number=2, channels=(channel(9),), paths=(path(104, of=1, to=9),))
    )
    router.commit_due()
    assert routes(recording) == {1: [7]}
    assert router.report().router["channels_waiting"] == 1
    recording.unreachable.clear()
    clock.now_ns += 1_000 * MS
    router.poll()
    router.commit_due()
    assert routes(recording) == {1: [7, 9]}
    assert router.report().router["channels_waiting"] == 0


def test_a_channel_that_moves_out_of_reach_is_taken_out_of_the_rows(
    router: StatusRouter, recording: RecordingCore
) -> None:
    recording.unreachable.add(7)
    router.apply(ChangeTable(term=1, number=2, channels=(channel(7, bandwidth_bytes_per_s=9),)))
    router.commit_due()
    assert routes(recording) == {1: []}


def test_rows_that_the_core_refuses_are_tried_again_with_the_next_change(
    router: StatusRouter, recording: RecordingCore, clock: HandClock
) -> None:
    recording.refusal = LimitReached("no room")
    router.apply(ChangeTable(term=1, number=2, variables=(variable(4),), closed_channels=()))
    with pytest.raises(LimitReached):
        router.commit_due()
    assert router.wait_s() is None
    recording.refusal = None
    clock.now_ns += 20 * MS
    router.apply(ChangeTable(term=1, number=3, variables=(variable(5),)))
    assert router.commit_due() == 2
    assert routes(recording) == {4: [], 5: []}


@pytest.mark.feature("S0-130")
def test_silence_return_and_pressure_are_told_of_what_the_table_names(
    router: StatusRouter, recording: RecordingCore
) -> None:
    recording.states = {3: {"silent_ns": 101 * MS, "datagrams": 0, "heard_ns": 0}}
    assert router.poll() == [SourceSilent(3, 101)]
    recording.states = {3: {"silent_ns": MS, "datagrams": 1, "heard_ns": 1_000 * MS}}
    assert router.poll() == []
    recording.states = {3: {"silent_ns": MS, "datagrams": 3, "heard_ns": 1_050 * MS}}
    recording.queued = 80
    assert router.poll() == [SourceReceived(3), WaterMarkCrossed(8, True, 80)]
    router.apply(ChangeTable(term=1, number=2, closed_sources=(3,)))
    recording.states = {3: {"silent_ns": 999 * MS, "datagrams": 3, "heard_ns": 1_050 * MS}}
    assert router.poll() == []


def test_replay_that_fills_its_queue_is_no_pressure(
    router: StatusRouter, recording: RecordingCore
) -> None:
    recording.queued, recording.replay_queued = 80, 70
    assert router.poll() == []
    recording.replay_queued = 0
    assert router.poll() == [WaterMarkCrossed(8, True, 80)]


def test_a_router_polls_as_often_as_the_shortest_allowed_silence_needs(
    router: StatusRouter,
) -> None:
    assert router.poll_after_s() == pytest.approx(0.02)  # 100 ms are minded on channel 3.
    patient = SourceOrder(channel_id=3, sender="c1/w0", silent_ms_max=300)
    router.apply(ChangeTable(term=1, number=2, sources=(patient,)))
    assert router.poll_after_s() == pytest.approx(0.06)
    nobody = SourceOrder(channel_id=3, sender="c1/w0", silent_ms_max=0)
    router.apply(ChangeTable(term=1, number=3, sources=(nobody,)))
    assert router.poll_after_s() == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("silent_ms", "after_s"), [(5, 0.02), (80, 0.02), (91, 0.009), (99, 0.004), (101, 0.02)]
)
def test_a_router_looks_at_a_source_when_it_will_have_been_silent_for_too_long(
    router: StatusRouter, recording: RecordingCore, silent_ms: int, after_s: float
) -> None:
    recording.states = {3: {"silent_ns": silent_ms * MS, "datagrams": 0, "heard_ns": 0}}
    router.poll()
    assert router.poll_after_s() == pytest.approx(after_s)


def test_the_report_holds_all_counters(router: StatusRouter, recording: RecordingCore) -> None:
    recording.states = {3: {"lost": 4}}
    report = router.report()
    assert report.router == {
        "in": 0,
        "kernel_dropped": 4,
        "channels_waiting": 0,
        "channels_without_key": 0,
        "channels_long_without_key": 0,
        "seeds_overdue": 0,
        "key_trials_dropped": 0,
        "orders_refused": 0,
        "rows_refused": 0,
        "fifo_priority": 0,
    }
    assert report.channels == {7: {"queued": 0, "sent": 7}, 8: {"queued": 0, "sent": 8}}
    assert report.sources == {3: {"lost": 4}}


def test_a_channel_that_gets_no_key_is_counted_after_ten_seconds_until_it_has_one(
    router: StatusRouter, clock: HandClock
) -> None:
    source = SourceOrder(channel_id=99, sender="c1/e9", is_sealed=True)
    router.apply(ChangeTable(term=1, number=9, sources=(source,)))
    counted = []
    for _ in range(4):
        router.poll_keys()
        counted.append(router.report().router["channels_long_without_key"])
        clock.now_ns += 5_000 * MS
    assert counted == [0, 0, 1, 1]
    router.take_seed(ChannelSeed(channel_id=99, number=1, secret=bytes(32)))
    router.poll_keys()
    assert router.report().router["channels_long_without_key"] == 0
