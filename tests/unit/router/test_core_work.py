"""Every change is answered once: when the core has it, or cannot have it."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LimitReached, UnknownName
from gridstat.model.rate_law import Period
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    VariableOrder,
)
from gridstat.router import StatusRouter
from gridstat.router.agent_words import (
    ApplyTable,
    CountersRead,
    ReadCounters,
    SetModes,
    TableApplied,
    TableFailed,
    WaterMarkCrossed,
)
from gridstat.router.core_work import CoreWork
from tests.unit.router.recording_core import RecordingCore

MS = 1_000_000


class HandClock:
    """A clock that moves when it is told to."""

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
def work(recording: RecordingCore, clock: HandClock) -> CoreWork:
    return CoreWork(StatusRouter("c1/e0", recording, clock_ns=clock))


def carry(number: int) -> ApplyTable:
    order = VariableOrder(variable_id=number, period=Period(1, 60))
    return ApplyTable(number, ChangeTable(term=1, number=number, variables=(order,)))


def test_a_lone_change_is_answered_at_the_next_work(work: CoreWork) -> None:
    assert work.perform(carry(1)) == []
    assert work.wait_s() == 0
    assert work.work() == [TableApplied(1)]
    assert work.wait_s() is None
    assert work.work() == []


def test_changes_that_are_committed_together_are_answered_together(
    work: CoreWork, clock: HandClock
) -> None:
    work.perform(carry(1))
    work.work()
    work.perform(carry(2))
    work.perform(carry(3))
    assert work.work() == []
    assert work.wait_s() == 0.001
    clock.now_ns += MS
    assert work.work() == [TableApplied(3)]


def test_a_change_that_touches_no_row_is_answered_too(work: CoreWork) -> None:
    work.perform(ApplyTable(1, ChangeTable(term=1, number=1)))
    assert work.wait_s() == 0
    assert work.work() == [TableApplied(1)]


def test_nonsense_is_answered_at_once(work: CoreWork) -> None:
    path = PathOrder(path_id=1, variable_id=1, channel_id=1)
    [failed] = work.perform(ApplyTable(4, ChangeTable(term=1, number=1, paths=(path,)))) or []
    assert isinstance(failed, TableFailed)
    assert (failed.number, failed.code) == (4, UnknownName.code)
    assert work.work() == []


def test_what_the_core_refuses_is_answered_once(work: CoreWork, recording: RecordingCore) -> None:
    recording.refusal = LimitReached("no room")
    work.perform(carry(1))
    assert work.work() == [TableFailed(1, LimitReached.code, "no room")]
    assert work.wait_s() is None
    assert work.work() == []


def test_modes_and_counters_pass_through(work: CoreWork, recording: RecordingCore) -> None:
    assert work.perform(SetModes(5)) == []
    assert recording.calls == ["modes 5"]
    [read] = work.perform(ReadCounters()) or []
    assert isinstance(read, CountersRead)
    assert read.report.router["in"] == 0
    assert work.perform("something else") is None


def test_channels_under_pressure_are_known(work: CoreWork, recording: RecordingCore) -> None:
    channel = ChannelOrder(
        channel_id=7,
        to="c1/e1",
        host="::1",
        data_port=1,
        urgent_port=2,
        bandwidth_bytes_per_s=1,
        queue_events_max=10,
    )
    work.perform(ApplyTable(1, ChangeTable(term=1, number=1, channels=(channel,))))
    recording.queued = 9
    assert work.poll() == [WaterMarkCrossed(7, True, 9)]
    assert work.pressed == {7}
    recording.queued = 0
    work.poll()
    assert work.pressed == set()
