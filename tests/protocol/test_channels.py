"""Channels that close and open again, or have an address: what stays true of them. Two subjects."""

from __future__ import annotations

import socket
from dataclasses import replace

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.errors import LayoutError, LimitReached, UnknownName
from tests.protocol.grids import (
    HEADER,
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    datagram,
    drops,
    event,
    periodic,
    told,
)

PLAIN = ChannelSpec(1)
PACED = ChannelSpec(1, bandwidth_bytes_per_s=1_000, queue_events_max=4)


def core_with(make_core: MakeCore, *specs: ChannelSpec) -> Subject:
    """Variable 1 goes to all of these channels."""
    core = make_core(SMALL)
    core.open_source(PUBLISHER)
    for spec in specs:
        core.open_channel(spec)
    routes = tuple(Route(spec.channel_id, (Term(1),)) for spec in specs)
    core.commit([periodic(1, 1, routes=routes)])
    return core


def publish(core: Subject, *slots: int) -> None:
    for slot in slots:
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)


def numbers(core: Subject) -> list[int]:
    return [HEADER.unpack_from(octets)[4] for _, octets in core.take_output(1)]


@pytest.mark.parametrize("first", [PLAIN, PACED], ids=["plain", "paced"])
@pytest.mark.parametrize("second", [PLAIN, PACED], ids=["plain", "paced"])
def test_a_reopened_channel_never_repeats_a_counter(
    subject: MakeCore, first: ChannelSpec, second: ChannelSpec
) -> None:
    core = core_with(subject, first)
    found = []
    for turn in range(4):
        publish(core, *range(turn * 3, turn * 3 + 3))
        found += numbers(core)
        core.close_channel(1)
        core.open_channel(second if turn % 2 == 0 else first)
    assert found == list(range(1, len(found) + 1))
    assert len(found) >= 4


def test_a_counter_survives_rows_and_other_channels_that_come_and_go(subject: MakeCore) -> None:
    core = core_with(subject, PLAIN)
    publish(core, 0, 1)
    assert numbers(core) == [1, 2]
    core.close_channel(1)
    core.commit(removals=[1])
    for channel_id in range(2, 2 + SMALL.channels_max):
        core.open_channel(ChannelSpec(channel_id))
    core.close_channel(2)
    core.open_channel(PLAIN)
    core.commit([periodic(1, 1, routes=(Route(1, (Term(1),)), Route(3, (Term(1),))))])
    publish(core, 2)
    assert numbers(core) == [3]
    assert HEADER.unpack_from(core.take_output(3)[0][1])[4] == 1


@pytest.mark.feature("S0-71")
def test_closing_a_channel_tells_what_became_of_its_events(subject: MakeCore) -> None:
    core = core_with(subject, PACED, ChannelSpec(2))
    publish(core, *range(10))
    before = core.channel_counters(1)
    assert (before["sent"], before["queued"], before["queue_full"]) == (1, 4, 5)
    final = core.close_channel(1)
    assert final == before | {"queued": 0, "send_failed": 4}
    assert final["due"] == final["sent"] + drops(final) == 10
    assert core.pool_free() == (SMALL.pool_small, SMALL.pool_large)
    plain = core.channel_counters(2)
    assert core.close_channel(2) == plain
    assert plain["due"] == plain["sent"] == 10


def test_a_reopened_channel_counts_its_events_from_nothing(subject: MakeCore) -> None:
    core = core_with(subject, PACED)
    publish(core, *range(10))
    core.close_channel(1)
    core.open_channel(PACED)
    assert set(core.channel_counters(1).values()) == {0}
    publish(core, 10)
    assert told(core.take_output(1)) == [(1, NOW_NS + 10 * MS)]


def test_the_limit_of_channels_is_for_open_ones_and_rows_may_name_as_many_closed_ones(
    subject: MakeCore,
) -> None:
    core = subject(replace(SMALL, channels_max=2))
    core.open_source(PUBLISHER)
    for variable_id, pair in ((1, (1, 2)), (2, (3, 4))):
        for channel_id in pair:
            core.open_channel(ChannelSpec(channel_id))
        with pytest.raises(LimitReached):
            core.open_channel(ChannelSpec(99))
        routes = tuple(Route(channel_id, (Term(1),)) for channel_id in pair)
        core.commit([periodic(variable_id, 1, routes=routes)])
        core.inject(datagram(PUBLISHER, event(variable_id, NOW_NS)), now_ns=NOW_NS)
        for channel_id in pair:
            assert told(core.take_output(channel_id)) == [(variable_id, NOW_NS)]
            core.close_channel(channel_id)
    with pytest.raises(LimitReached):
        core.open_channel(ChannelSpec(5))
    core.open_channel(ChannelSpec(1))
    core.commit(removals=[2])
    core.open_channel(ChannelSpec(5))
    core.inject(datagram(PUBLISHER, event(1, NOW_NS + MS)), now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(1, NOW_NS + MS)]
    assert core.take_output(5) == []


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"variables_max": 0}, id="no variable"),
        pytest.param({"rings_max": 2**20 + 1}, id="too many rings"),
        pytest.param({"channels_max": 0}, id="no channel"),
        pytest.param({"pool_small": -1}, id="less than no buffer"),
        pytest.param({"stamp_bound_ns": 2**64}, id="more than 64 bits"),
    ],
)
def test_limits_that_make_no_sense_are_refused(subject: MakeCore, wrong: dict[str, int]) -> None:
    with pytest.raises(LayoutError):
        subject(replace(SMALL, **wrong))


def test_a_channel_with_an_address_keeps_nothing_to_take(subject: MakeCore) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        peer.settimeout(10)
        peer.bind(("127.0.0.1", 0))
        port = peer.getsockname()[1]
        core = core_with(subject, ChannelSpec(1, address=("127.0.0.1", port, port)))
        publish(core, 0)
        assert peer.recv(2_000) == datagram(1, event(1, NOW_NS))
        with pytest.raises(UnknownName):
            core.take_output(1)
        assert core.close_channel(1)["sent"] == 1
