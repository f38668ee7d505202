"""Forwarding to channels: look-up, rate filter, multicast. Same tests, two subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from tests.golden.load import load_golden
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    Grid,
    MakeCore,
    Subject,
    Way,
    assert_reconciled,
    datagram,
    event,
    periodic,
    told,
)

if TYPE_CHECKING:
    from gridstat.core.rows import Row


def to(channel_id: int, *every: int) -> Route:
    return Route(channel_id, tuple(Term(n) for n in every or (1,)))


def edge_core(make_core: MakeCore, channels: int) -> Subject:
    """A core with a publisher in front of it and memory channels 1 to `channels` behind it."""
    core = make_core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    for channel_id in range(1, channels + 1):
        core.open_channel(ChannelSpec(channel_id))
    return core


def publish(core: Subject, variable_id: int, created_ns: int) -> None:
    core.inject(datagram(PUBLISHER, event(variable_id, created_ns)), now_ns=created_ns)


def stamps(core: Subject, channel_id: int) -> list[int]:
    """Milliseconds after the start of what was sent on a channel."""
    return [(created - NOW_NS) // MS for _, created in told(core.take_output(channel_id))]


@pytest.mark.feature("S3-1", "S3-55")
def test_each_of_a_thousand_variables_reaches_exactly_its_configured_channels(
    subject: MakeCore,
) -> None:
    core = edge_core(subject, channels=8)
    wanted = {
        variable_id: {1 + bit for bit in range(8) if variable_id * 37 % 255 + 1 >> bit & 1}
        for variable_id in range(1, 1_001)
    }
    core.commit([periodic(v, 20, routes=tuple(map(to, sorted(ids)))) for v, ids in wanted.items()])
    for variable_id in wanted:
        publish(core, variable_id, NOW_NS)
    for channel_id in range(1, 9):
        expected = [(v, NOW_NS) for v, ids in wanted.items() if channel_id in ids]
        assert told(core.take_output(channel_id)) == expected
    assert core.counters()["dispatched"] == 1_000
    assert_reconciled(core, range(1, 9))


@pytest.mark.feature("S3-2")
def test_an_unknown_variable_is_dropped_and_counted_and_the_next_event_passes(
    subject: MakeCore,
) -> None:
    core = edge_core(subject, channels=1)
    core.commit([periodic(7, 20, routes=(to(1),))])
    core.inject(datagram(PUBLISHER, event(8, NOW_NS), event(7, NOW_NS)), now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(7, NOW_NS)]
    assert core.counters()["unknown_variable"] == 1
    assert_reconciled(core, [1])


def test_events_on_a_channel_that_is_not_open_are_unknown_each(subject: MakeCore) -> None:
    core = edge_core(subject, channels=1)
    core.commit([periodic(7, 20, routes=(to(1),))])
    core.inject(datagram(5, event(7, NOW_NS), event(7, NOW_NS + 20 * MS)), now_ns=NOW_NS)
    assert core.counters()["unknown_channel"] == 2
    assert core.take_output(1) == []
    assert_reconciled(core, [1])


@pytest.mark.feature("S3-3")
def test_subscribers_at_1_s_and_at_100_ms_of_a_10_ms_variable_get_their_own_rates(
    subject: MakeCore,
) -> None:
    core = edge_core(subject, channels=2)
    core.commit([periodic(1, 10, routes=(to(1, 100), to(2, 10)))])
    for index in range(300):
        publish(core, 1, NOW_NS + index * 10 * MS)
    assert stamps(core, 1) == [0, 1_000, 2_000]
    assert stamps(core, 2) == list(range(0, 3_000, 100))


@pytest.mark.feature("S1-30")
def test_of_a_100_ms_source_a_300_ms_set_passes_one_in_three(subject: MakeCore) -> None:
    core = edge_core(subject, channels=1)
    core.commit([periodic(1, 100, phase_ns=NOW_NS % (300 * MS), routes=(to(1, 3),))])
    for index in range(30):
        publish(core, 1, NOW_NS + index * 100 * MS)
    assert stamps(core, 1) == list(range(0, 3_000, 300))
    assert core.counters()["not_due"] == 20
    assert_reconciled(core, [1])


@pytest.mark.feature("S0-67")
def test_the_golden_timeline_holds_on_every_hop_of_the_chain(subject: MakeCore) -> None:
    """S0 A11: p0 at e0 every 30 ms; e1 {90, 180, 630}, e2 {240}, e3 {630}; the first 780 ms."""
    golden = load_golden("rate_filter.toml")["timeline"][0]
    ways = [Way(*channel["name"].split("-")) for channel in golden["channel"]]
    grid = Grid(subject, ways)
    rows: dict[str, Row] = {name: periodic(1, golden["period"]) for name in grid.cores}
    for way, channel in zip(ways, golden["channel"], strict=True):
        every = (interval // golden["period"] for interval in channel["intervals"])
        route = to(grid.channel_ids[way.start, way.end], *every)
        rows[way.start] = replace(rows[way.start], routes=(*rows[way.start].routes, route))
    for name, row in rows.items():
        grid.cores[name].commit([row])
    seen: dict[str, list[int]] = {}
    for stamp in range(golden["from"], golden["until"] + 1, golden["period"]):
        grid.now_ns = stamp * MS + 2
        grid.publish_at("e0", event(1, stamp * MS))
        for travelled in grid.rounds():
            for way_ends, events in travelled.items():
                seen.setdefault("-".join(way_ends), []).extend(at // MS for _, at in events)
    assert seen == {channel["name"]: channel["stamps"] for channel in golden["channel"]}


@pytest.mark.feature("S0-60")
def test_a_second_subscription_at_the_same_router_and_interval_costs_nothing_upstream(
    subject: MakeCore,
) -> None:
    grid = Grid(subject, [Way("e0", "e1"), Way("e1", "s0"), Way("e1", "s1")])
    first = grid.channel_ids["e1", "s0"]
    second = grid.channel_ids["e1", "s1"]
    upstream = periodic(1, 10, routes=(to(grid.channel_ids["e0", "e1"], 2),))
    grid.cores["e0"].commit([upstream])
    grid.cores["e1"].commit([periodic(1, 10, routes=(to(first, 2),))])

    def travelled_in_100_ms(start: int) -> dict[tuple[str, str], int]:
        for slot in range(start, start + 10):
            grid.now_ns = NOW_NS + slot * 10 * MS
            grid.publish_at("e0", event(1, grid.now_ns))
        return {way: len(events) for moved in grid.rounds() for way, events in moved.items()}

    alone = travelled_in_100_ms(0)
    grid.cores["e1"].commit([periodic(1, 10, routes=(to(first, 2), to(second, 2)))])
    both = travelled_in_100_ms(10)
    assert alone == {("e0", "e1"): 5, ("e1", "s0"): 5}
    assert both == {("e0", "e1"): 5, ("e1", "s0"): 5, ("e1", "s1"): 5}


@pytest.mark.feature("S0-65")
def test_sets_of_ten_variables_are_complete_at_every_interval(subject: MakeCore) -> None:
    core = edge_core(subject, channels=3)
    routes = (to(1, 2), to(2, 3), to(3, 4))
    core.commit([periodic(v, 10, routes=routes) for v in range(1, 11)])
    for slot in range(60):
        for variable_id in range(1, 11):  # Each publisher is off by up to 4 ms, in its own way.
            skew_ns = (variable_id * 7 + slot * 3) % 9 * MS - 4 * MS
            publish(core, variable_id, NOW_NS + slot * 10 * MS + skew_ns)
    for channel_id, every in ((1, 2), (2, 3), (3, 4)):
        sets: dict[int, list[int]] = {}
        for variable_id, created_ns in told(core.take_output(channel_id)):
            slot = (created_ns - NOW_NS + 5 * MS) // (10 * MS)
            sets.setdefault(slot, []).append(variable_id)
        phase = -(NOW_NS // (10 * MS)) % every
        assert list(sets) == list(range(phase, 60, every))
        assert all(members == list(range(1, 11)) for members in sets.values())


@pytest.mark.feature("S0-66", "S3-6")
def test_two_subscribers_behind_one_channel_share_one_copy_per_due_event(
    subject: MakeCore,
) -> None:
    """S0 §2.2.3: 10 ms published, 20 and 30 ms wanted: 20, 30, 40, 60, and one copy at 60."""
    core = edge_core(subject, channels=1)
    core.commit([periodic(1, 10, routes=(to(1, 2, 3),))])
    for slot in range(1, 7):
        core.inject(datagram(PUBLISHER, event(1, slot * 10 * MS)), now_ns=slot * 10 * MS)
    outputs = core.take_output(1)
    assert [created // MS for _, created in told(outputs)] == [20, 30, 40, 60]
    assert len(outputs) == 4
    assert core.channel_counters(1)["due"] == 4


@pytest.mark.feature("S3-7")
@pytest.mark.parametrize("fan_out", range(2, 17))
def test_every_channel_of_a_fan_out_counts_the_same_due_events(
    subject: MakeCore, fan_out: int
) -> None:
    core = edge_core(subject, channels=fan_out)
    core.commit([periodic(1, 10, routes=tuple(to(i, 2) for i in range(1, fan_out + 1)))])
    for slot in range(20):
        publish(core, 1, NOW_NS + slot * 10 * MS)
    outputs = [told(core.take_output(i)) for i in range(1, fan_out + 1)]
    assert outputs == [outputs[0]] * fan_out
    assert {core.channel_counters(i)["due"] for i in range(1, fan_out + 1)} == {10}
    assert_reconciled(core, range(1, fan_out + 1))


@pytest.mark.feature("S0-51")
def test_of_two_redundant_copies_one_is_delivered_per_time_stamp(subject: MakeCore) -> None:
    grid = Grid(
        subject,
        [Way("e0", "i0"), Way("e0", "i1"), Way("i0", "e1"), Way("i1", "e1"), Way("e1", "s")],
    )
    for name in ("e0", "i0", "i1", "e1"):
        routes = tuple(to(i) for (start, _), i in grid.channel_ids.items() if start == name)
        grid.cores[name].commit([periodic(1, 10, routes=routes), periodic(2, 10, routes=routes)])
    delivered = []
    for slot in range(20):
        grid.now_ns = NOW_NS + slot * 10 * MS
        grid.publish_at("e0", event(1, grid.now_ns), event(2, grid.now_ns))
        for travelled in grid.rounds():
            delivered += travelled.get(("e1", "s"), [])
    assert sorted(delivered) == [(v, NOW_NS + s * 10 * MS) for v in (1, 2) for s in range(20)]
    assert grid.cores["e1"].counters()["duplicate"] == 40


@pytest.mark.feature("S1-7")
def test_an_unsubscribed_publication_ends_at_the_publishers_router(subject: MakeCore) -> None:
    grid = Grid(subject, [Way("e0", "e1")])
    grid.cores["e0"].commit([periodic(1, 10)])
    for slot in range(10):
        grid.now_ns = NOW_NS + slot * 10 * MS
        grid.publish_at("e0", event(1, grid.now_ns))
    assert grid.rounds() == []
    assert grid.cores["e0"].counters()["not_due"] == 10
    assert grid.cores["e1"].counters()["in"] == 0


@pytest.mark.feature("S3-40")
def test_paths_come_and_go_while_events_flow_and_other_variables_lose_nothing(
    subject: MakeCore,
) -> None:
    core = edge_core(subject, channels=2)
    steady = periodic(1, 10, routes=(to(1),))
    core.commit([steady])
    for slot in range(40):
        if slot == 10:
            core.commit([periodic(2, 10, routes=(to(2),))])
        if slot == 20:
            core.commit([periodic(2, 10, routes=(to(2, 2),)), periodic(3, 10, routes=(to(2),))])
        if slot == 30:
            core.commit(removals=[2])
        for variable_id in (1, 2, 3):
            publish(core, variable_id, NOW_NS + slot * 10 * MS)
    steps = [(v, (created - NOW_NS) // (10 * MS)) for v, created in told(core.take_output(2))]
    assert stamps(core, 1) == list(range(0, 400, 10))
    assert [slot for v, slot in steps if v == 2] == [*range(10, 20), *range(20, 30, 2)]
    assert [slot for v, slot in steps if v == 3] == list(range(20, 40))
    assert core.counters()["unknown_variable"] == 10 + 20 + 10
    assert_reconciled(core, [1, 2])


def test_a_route_to_a_channel_that_is_not_open_is_not_due(subject: MakeCore) -> None:
    core = edge_core(subject, channels=2)
    core.commit([periodic(1, 10, routes=(to(1), to(2)))])
    core.close_channel(2)
    publish(core, 1, NOW_NS)
    core.close_channel(1)
    publish(core, 1, NOW_NS + 10 * MS)
    assert (core.counters()["dispatched"], core.counters()["not_due"]) == (1, 1)
    assert_reconciled(core)


def test_a_changed_period_or_phase_starts_a_fresh_window_and_a_changed_route_does_not(
    subject: MakeCore,
) -> None:
    core = edge_core(subject, channels=1)
    core.commit([periodic(1, 10, routes=(to(1),))])
    publish(core, 1, NOW_NS)
    core.commit([periodic(1, 10, routes=(to(1, 1, 2),))])
    publish(core, 1, NOW_NS)
    assert core.counters()["policed_slot"] == 1
    core.commit([periodic(1, 10, phase_ns=3, routes=(to(1),))])
    publish(core, 1, NOW_NS)
    core.commit([periodic(1, 20, phase_ns=3, routes=(to(1),))])
    publish(core, 1, NOW_NS)
    assert core.counters()["policed_slot"] == 1
    assert stamps(core, 1) == [0, 0, 0]
