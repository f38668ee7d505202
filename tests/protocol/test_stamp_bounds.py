"""Bounds of stamps at the first hop: two periods ahead, the declared delay behind."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.core.rows import (
    STAMP_NEAR_NS,
    ChannelSpec,
    Limits,
    Route,
    Row,
    Term,
    check_limits,
    check_row,
)
from gridstat.model.errors import LayoutError
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.stamp_law import (
    AHEAD_NS_MIN,
    DELAY_MS_DEFAULT,
    NS_PER_MS,
    ahead_ns_max,
    charged_delay_us,
)
from gridstat.net.command.router_messages import FloodOrder, VariableOrder
from gridstat.router.forwarding_table import FLOOD_AHEAD_NS_MAX, forwarding_row
from gridstat.router.path_table import CarriedVariable
from gridstat.router.table_orders import carried_of
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    assert_reconciled,
    datagram,
    event,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

ROUTES = (Route(1, (Term(1),)),)
RATE = 60
PERIOD = Period(1, RATE)


def row_of(delay_ms: int, period: Period | None = PERIOD, interval_ns_min: int = 0) -> Row:
    carried = CarriedVariable(
        VariableId(7), period, source=PUBLISHER, delay_ms=delay_ms, interval_ns_min=interval_ns_min
    )
    return replace(forwarding_row(carried, ()), routes=ROUTES)


def core_with(make_core: MakeCore, row: Row) -> Subject:
    core = make_core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_channel(ChannelSpec(1))
    core.commit([row])
    return core


def policed(core: Subject, stamps: Iterable[int], now_ns: int = NOW_NS) -> int:
    for created_ns in stamps:
        core.inject(datagram(PUBLISHER, event(7, created_ns)), now_ns=now_ns)
    return core.counters()["policed_stamp"]


@pytest.mark.parametrize(
    ("delay_ms", "period", "ahead_ns", "behind_ns"),
    [
        (100, PERIOD, 100 * MS, 100 * MS),
        (100, Period(1, 1), 2_000 * MS, 100 * MS),
        (2_500, PERIOD, 100 * MS, 2_500 * MS),
        (10_000, Period(60, 1), 120_000 * MS, 10_000 * MS),
    ],
)
def test_the_bounds_hold_to_the_nanosecond(
    subject: MakeCore, delay_ms: int, period: Period, ahead_ns: int, behind_ns: int
) -> None:
    for offset_ns, count in (
        (ahead_ns, 0),
        (ahead_ns + 1, 1),
        (-behind_ns, 0),
        (-behind_ns - 1, 1),
    ):
        core = core_with(subject, row_of(delay_ms, period))
        assert policed(core, [NOW_NS + offset_ns]) == count, offset_ns
        assert_reconciled(core, [1])


def test_a_variable_without_a_period_may_be_100_ms_ahead(subject: MakeCore) -> None:
    core = core_with(subject, row_of(100, None, interval_ns_min=MS))
    assert policed(core, [NOW_NS + 100 * MS]) == 0
    assert policed(core, [NOW_NS + 100 * MS + 1]) == 1


def test_without_a_declared_delay_the_bound_is_that_of_the_limits(subject: MakeCore) -> None:
    core = core_with(subject, row_of(0))
    bound_ns = SMALL.stamp_bound_ns
    assert policed(core, [NOW_NS - bound_ns, NOW_NS + bound_ns]) == 0
    assert policed(core, [NOW_NS - bound_ns - 1, NOW_NS + bound_ns + 1]) == 2


def test_a_core_without_a_bound_has_none_for_any_row(subject: MakeCore) -> None:
    core = subject(replace(SMALL, stamp_bound_ns=0))
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_channel(ChannelSpec(1))
    core.commit([row_of(100)])
    assert policed(core, [NOW_NS + 3_600_000 * MS]) == 0


def test_belated_alerts_have_no_bound_whatever_the_row_says(subject: MakeCore) -> None:
    belated = aperiodic(7, interval_ns_min=MS, is_stamp_exempt=True, routes=ROUTES)
    core = core_with(subject, replace(belated, ahead_ns_max=100 * MS, behind_ns_max=100 * MS))
    assert policed(core, [NOW_NS - 3_600_000 * MS]) == 0


@pytest.mark.parametrize("slots_ahead", [10_000, 590, 256, 7])
def test_a_few_stamps_of_the_future_silence_no_event(subject: MakeCore, slots_ahead: int) -> None:
    """The attack: sixteen datagrams of the publisher's own channel, far ahead, two and two."""
    core = core_with(subject, row_of(DELAY_MS_DEFAULT))
    first = NOW_NS * RATE // 1_000_000_000 + 1
    sent = []
    for step in range(4 * RATE):
        now_ns = -(-(first + step) * 1_000_000_000 // RATE)
        if step == RATE:
            for pair in range(8):
                ahead = first + step + slots_ahead * (pair + 1)
                forged = [-(-(ahead + at) * 1_000_000_000 // RATE) for at in (0, 1)]
                policed(core, forged, now_ns=now_ns)
        core.inject(datagram(PUBLISHER, event(7, now_ns)), now_ns=now_ns)
        sent.append(now_ns)
    arrived = {created for _, created in told(core.take_output(1))}
    assert set(sent) <= arrived, "no honest event is lost"
    assert core.counters()["policed_stamp"] == 16
    assert_reconciled(core, [1])


def test_the_order_of_a_variable_bounds_its_stamps_at_the_first_router_only() -> None:
    order = VariableOrder(variable_id=7, period=PERIOD, source=3, delay_ms=400)
    row = forwarding_row(carried_of(order), ())
    assert (row.ahead_ns_max, row.behind_ns_max) == (AHEAD_NS_MIN, 400 * NS_PER_MS)
    behind = forwarding_row(carried_of(VariableOrder(variable_id=7, period=PERIOD)), ())
    assert (behind.ahead_ns_max, behind.behind_ns_max) == (0, 0)


def test_a_slow_flood_is_never_further_ahead_than_the_routers_behind_allow() -> None:
    floods = (FloodOrder(level=0),)
    order = VariableOrder(
        variable_id=7, period=Period(60, 1), source=3, delay_ms=100, floods=floods
    )
    assert forwarding_row(carried_of(order), ()).ahead_ns_max == FLOOD_AHEAD_NS_MAX


def test_bounds_below_the_nearness_of_the_core_are_refused() -> None:
    with pytest.raises(LayoutError, match="bounds of stamps"):
        check_row(replace(row_of(100), behind_ns_max=STAMP_NEAR_NS - 1))
    with pytest.raises(LayoutError, match="stamp_bound_ns"):
        check_limits(Limits(stamp_bound_ns=STAMP_NEAR_NS - 1))


def test_the_law_of_two_periods_and_of_the_charged_delay() -> None:
    assert ahead_ns_max(None) == AHEAD_NS_MIN
    assert ahead_ns_max(Period(1, 3)) == 666_666_667
    assert charged_delay_us(DELAY_MS_DEFAULT) == 0
    assert charged_delay_us(2_000) == 2_000_000


HOUR_NS = 3_600_000 * MS


@pytest.mark.parametrize("step_ns", [HOUR_NS, -HOUR_NS], ids=["ahead", "back"])
@pytest.mark.parametrize("rate", [60, 1_000])
def test_all_clocks_set_by_an_hour_cost_no_router_an_event(
    subject: MakeCore, rate: int, step_ns: int
) -> None:
    """The attack, or the mistake: a time server that is an hour off. Three routers in a row."""
    period = Period(1, rate)
    first = row_of(DELAY_MS_DEFAULT, period)
    behind = replace(first, source=0, ahead_ns_max=0, behind_ns_max=0)
    cores = [core_with(subject, first)]
    for _ in range(2):
        core = subject(SMALL)
        core.open_source(PUBLISHER)
        core.open_channel(ChannelSpec(1))
        core.commit([behind])
        cores.append(core)
    begin = NOW_NS * rate // 1_000_000_000 + 1
    sent = []
    for step in range(2 * rate):
        clock_ns = step_ns if step >= rate else 0
        created_ns = -(-(begin + step) * 1_000_000_000 // rate) + clock_ns
        sent.append(created_ns)
        events = [event(7, created_ns)]
        for core in cores:
            core.inject(datagram(PUBLISHER, *events), now_ns=created_ns + 200_000)
            passed = told(core.take_output(1))
            events = [event(7, each) for _, each in passed]
            if not events:
                break
        else:
            sent.pop()
    assert len(sent) <= 1, f"{len(sent)} events are lost, a period at most may be"


def test_a_stamp_of_an_hour_ago_is_no_set_clock_while_ours_goes_on(subject: MakeCore) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    core.commit([replace(row_of(0), source=0)])
    slots = [NOW_NS * RATE // 1_000_000_000 + step for step in range(120)]
    for slot in slots:
        now_ns = -(-slot * 1_000_000_000 // RATE)
        core.inject(datagram(PUBLISHER, event(7, now_ns)), now_ns=now_ns)
        core.inject(datagram(PUBLISHER, event(7, now_ns - HOUR_NS)), now_ns=now_ns)
    assert len(told(core.take_output(1))) == 120
    assert core.counters()["too_old"] == 120
