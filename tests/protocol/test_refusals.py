"""Refusals of a core by name; a refused call changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.model.errors import LayoutError, LimitReached, UnknownName
from gridstat.model.rate_law import Period
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    datagram,
    event,
    periodic,
    told,
)

ROUTES = (Route(1, (Term(1),)),)
SOUND = periodic(1, 10, routes=ROUTES)


def small_core(make_core: MakeCore) -> Subject:
    """Room for three variables, one of them aperiodic, and for two channels."""
    core = make_core(replace(SMALL, variables_max=3, rings_max=1, channels_max=2))
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    core.commit([SOUND])
    return core


def passes(core: Subject, variable_id: int, slot: int) -> bool:
    octets = datagram(PUBLISHER, event(variable_id, NOW_NS + slot * 10 * MS))
    core.inject(octets, now_ns=NOW_NS)
    return bool(told(core.take_output(1)))


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([periodic(v, 10, routes=ROUTES) for v in (2, 3, 4)], id="variables"),
        pytest.param([aperiodic(v, routes=ROUTES) for v in (2, 3)], id="rings"),
    ],
)
def test_a_delta_beyond_the_limits_is_refused_whole(subject: MakeCore, rows: list[Row]) -> None:
    core = small_core(subject)
    with pytest.raises(LimitReached):
        core.commit(rows)
    assert not passes(core, 2, 0)
    assert passes(core, 1, 0)
    core.commit(rows[:1])
    assert passes(core, 2, 1)


def test_a_full_table_takes_one_row_for_another_in_one_delta(subject: MakeCore) -> None:
    core = small_core(subject)
    core.commit([periodic(2, 10, routes=ROUTES), aperiodic(3, routes=ROUTES)])
    core.commit([periodic(4, 10, routes=ROUTES), aperiodic(5, routes=ROUTES)], removals=[1, 3])
    assert [passes(core, variable_id, 0) for variable_id in (1, 2, 3, 4, 5)] == [
        False,
        True,
        False,
        True,
        True,
    ]


def test_all_rows_of_a_full_table_may_change_their_period_at_once(subject: MakeCore) -> None:
    core = subject(replace(SMALL, variables_max=1_000))
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    core.commit([periodic(v, 10, routes=ROUTES) for v in range(1_000)])
    core.commit([periodic(v, 20, routes=ROUTES) for v in range(1_000)])
    assert passes(core, 999, 0)


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(replace(SOUND, variable_id=2**32), id="variable"),
        pytest.param(replace(SOUND, phase_ns=-1), id="phase"),
        pytest.param(replace(SOUND, source=-1), id="source"),
        pytest.param(replace(SOUND, routes=(Route(1, ()),)), id="no term"),
        pytest.param(replace(SOUND, routes=(Route(1, (Term(0),)),)), id="divisor 0"),
        pytest.param(replace(SOUND, routes=(Route(1, (Term(1, 0),)),)), id="no mode"),
        pytest.param(replace(SOUND, routes=(Route(1, (Term(1),), 0),)), id="priority 0"),
        pytest.param(replace(SOUND, routes=(Route(1, (Term(1),), 9),)), id="priority 9"),
        pytest.param(replace(SOUND, routes=(*ROUTES, *ROUTES)), id="a channel twice"),
        pytest.param(
            replace(SOUND, routes=(Route(1, tuple(Term(n) for n in range(1, 66))),)),
            id="65 divisors",
        ),
    ],
)
def test_a_row_that_makes_no_sense_is_refused(subject: MakeCore, row: Row) -> None:
    core = small_core(subject)
    with pytest.raises(LayoutError):
        core.commit([periodic(2, 10), row])
    assert passes(core, 1, 0)
    assert core.counters()["unknown_variable"] == 0


def test_a_row_with_64_divisors_is_served_by_each(subject: MakeCore) -> None:
    core = small_core(subject)
    terms = tuple(Term(1_000 + n) for n in range(64))
    core.commit([Row(1, Period(1, 1_000), routes=(Route(1, terms),))])
    for slot in (1_000, 1_031, 1_063, 1_064, 999, 2 * 1_063):
        core.inject(datagram(PUBLISHER, event(1, slot * MS)), now_ns=NOW_NS)
    core.inject(datagram(PUBLISHER, event(1, 2 * 1_063 * MS + MS)), now_ns=NOW_NS)
    assert [at // MS for _, at in told(core.take_output(1))] == [1_000, 1_031, 1_063]
    assert core.counters()["policed_jump"] == 1


def test_a_variable_stands_in_a_delta_once(subject: MakeCore) -> None:
    core = small_core(subject)
    with pytest.raises(LayoutError):
        core.commit([SOUND], removals=[1])
    with pytest.raises(LayoutError):
        core.commit([SOUND, SOUND])


def test_a_route_needs_an_open_channel_and_finds_it_again_when_it_reopens(
    subject: MakeCore,
) -> None:
    core = small_core(subject)
    with pytest.raises(UnknownName):
        core.commit([periodic(2, 10, routes=(Route(2, (Term(1),)),))])
    core.close_channel(1)
    core.inject(datagram(PUBLISHER, event(1, NOW_NS)), now_ns=NOW_NS)
    assert core.counters()["not_due"] == 1
    core.open_channel(ChannelSpec(1))
    assert passes(core, 1, 1)
    assert core.channel_counters(1)["due"] == 1


def test_channels_are_opened_once_and_within_their_limit(subject: MakeCore) -> None:
    core = small_core(subject)
    with pytest.raises(LayoutError):
        core.open_channel(ChannelSpec(1))
    with pytest.raises(LayoutError):
        core.open_channel(ChannelSpec(3, mtu_bytes=63))
    core.open_channel(ChannelSpec(2))
    with pytest.raises(LimitReached):
        core.open_channel(ChannelSpec(3))
    core.close_channel(2)
    core.open_channel(ChannelSpec(3))


@pytest.mark.parametrize(
    ("channel_id", "back_channel"), [(0, 0), (-1, 0), (2**32, 0), (5, -1), (5, 2**32)]
)
def test_a_source_needs_a_number_that_a_header_can_carry(
    subject: MakeCore, channel_id: int, back_channel: int
) -> None:
    core = small_core(subject)
    with pytest.raises(LayoutError):
        core.open_source(channel_id, back_channel=back_channel)
    core.inject(datagram(channel_id % 2**32, event(1, NOW_NS)), now_ns=NOW_NS)
    assert core.counters()["unknown_channel"] == 1


def test_what_is_not_open_has_no_counters_and_cannot_close(subject: MakeCore) -> None:
    core = small_core(subject)
    for ask in (core.channel_counters, core.take_output, core.close_channel, core.close_source):
        with pytest.raises(UnknownName):
            ask(77)
