"""Every change is answered once: when the core has it, or cannot have it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from gridstat.core._core import Core
from gridstat.core.rows import Limits
from gridstat.model.errors import LimitReached, UnknownName
from gridstat.model.rate_law import Period
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    VariableOrder,
)
from gridstat.router import StatusRouter
from gridstat.router.agent_events import (
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
SMALL = Limits(variables_max=64, rings_max=4, channels_max=8, pool_small=64, pool_large=4)


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


def test_what_the_core_refuses_while_no_change_waits_is_told_too(
    work: CoreWork, recording: RecordingCore, clock: HandClock
) -> None:
    channel = ChannelOrder(channel_id=7, to="c1/e1", host="::1", data_port=1, urgent_port=2)
    recording.unreachable.add(7)
    path = PathOrder(path_id=1, variable_id=1, channel_id=7)
    variable = VariableOrder(variable_id=1, period=Period(1, 60))
    table = ChangeTable(term=1, number=1, channels=(channel,), variables=(variable,), paths=(path,))
    work.perform(ApplyTable(1, table))
    assert work.work() == [TableApplied(1)]
    recording.unreachable.clear()
    recording.refusal = LimitReached("no room")
    clock.now_ns += 2_000 * MS
    work.poll()
    assert work.work() == [TableFailed(0, LimitReached.code, "no room")]


def in_memory(core: Core, clock: HandClock) -> CoreWork:
    return CoreWork(StatusRouter("c1/e0", core, clock_ns=clock, in_memory=True))


def carry_all(number: int, count: int) -> ApplyTable:
    orders = tuple(VariableOrder(variable_id=1 + at, period=Period(1, 60)) for at in range(count))
    return ApplyTable(
        number, ChangeTable(term=1, number=number, begins_anew=True, variables=orders)
    )


def test_rows_that_the_core_refuses_do_not_keep_the_others_out(clock: HandClock) -> None:
    core = Core(replace(SMALL, variables_max=10))
    work = in_memory(core, clock)
    work.perform(carry_all(1, 12))
    [failed] = work.work()
    assert isinstance(failed, TableFailed)
    assert core.rows() == 10
    clock.now_ns += 10 * MS
    work.perform(carry_all(2, 12))
    no_room = "no room for so many variables"
    applied = TableApplied(2, {11: no_room, 12: no_room})
    assert work.work() == [applied], "the same complaint is made once, and the rows are named"
    [read] = work.perform(ReadCounters()) or []
    assert isinstance(read, CountersRead)
    assert read.report.router["rows_refused"] == 2
    work.perform(ApplyTable(3, ChangeTable(term=1, number=3, dropped=(1, 2))))
    clock.now_ns += 10 * MS
    assert work.work() == [TableApplied(3)], "there is room for all of them now"
    core.close()


def test_a_whole_table_is_taken_without_the_orders_that_make_no_sense(
    clock: HandClock,
) -> None:
    core = Core(SMALL)
    work = in_memory(core, clock)
    sound = ChannelOrder(channel_id=7, to="c1/e1", host="::1", data_port=1, urgent_port=2)
    table = ChangeTable(
        term=1,
        number=1,
        begins_anew=True,
        channels=(sound, msgspec.structs.replace(sound, channel_id=8, mtu_bytes=0)),
        variables=(VariableOrder(variable_id=1, period=Period(1, 60)),),
        paths=(
            PathOrder(path_id=1, variable_id=1, channel_id=7),
            PathOrder(path_id=2, variable_id=1, channel_id=8),
        ),
    )
    assert work.perform(ApplyTable(1, table)) == []
    assert work.work() == [TableApplied(1)]
    [read] = work.perform(ReadCounters()) or []
    assert isinstance(read, CountersRead)
    assert read.report.router["orders_refused"] == 2
    assert set(read.report.channels) == {7}
    core.close()


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
    assert work.back_pressured == {7}
    recording.queued = 0
    work.poll()
    assert work.back_pressured == set()
