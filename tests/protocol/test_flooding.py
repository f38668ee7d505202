"""Limited flooding: first copy only, never back, never out of the level. Two subjects."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import Any

import pytest

from gridstat.core.rows import ChannelSpec, Flood, Route, Term
from tests.golden.load import load_golden
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    Grid,
    MakeCore,
    Way,
    assert_reconciled,
    datagram,
    event,
    periodic,
    told,
)

TOPOLOGIES: list[dict[str, Any]] = load_golden("flooding.toml")["topology"]
CASES = [
    pytest.param(topology, case, id=f"{topology['name']}, {case['name']}")
    for topology in TOPOLOGIES
    for case in topology["case"]
]
PERIOD_MS = 10


def grid_of(make_core: MakeCore, topology: dict[str, Any]) -> Grid:
    ways = [Way(each["from"], each["to"], each["level"]) for each in topology["channels"]]
    return Grid(make_core, ways)


def flood_everywhere(grid: Grid, scope_level: int) -> None:
    for core in grid.cores.values():
        core.commit([periodic(1, PERIOD_MS, floods=(Flood(scope_level),))])


@pytest.mark.feature("S0-78", "S0-80")
@pytest.mark.parametrize(("topology", "case"), CASES)
def test_the_golden_rounds_and_dropped_copies_hold(
    subject: MakeCore, topology: dict[str, Any], case: dict[str, Any]
) -> None:
    grid = grid_of(subject, topology)
    flood_everywhere(grid, case["scope_level"])
    grid.publish_at(case["publisher_at"], event(1, NOW_NS))
    rounds = []
    travelled: Counter[tuple[str, str]] = Counter()
    seen, dropped = grid.counts("flooded"), grid.counts("duplicate")
    while moved := grid.round():
        travelled.update({way: len(events) for way, events in moved.items()})
        first = sorted((grid.counts("flooded") - seen).elements())
        late = sorted((grid.counts("duplicate") - dropped).elements())
        rounds.append({"first": first, "dropped": late})
        seen, dropped = grid.counts("flooded"), grid.counts("duplicate")
    assert rounds == case["rounds"]
    assert sorted(set(seen.elements()) - {case["publisher_at"]}) == case["reached"]
    assert dropped.total() == case["drops"] == travelled.total() - len(case["reached"])
    assert set(travelled.values()) == {1}


@pytest.mark.feature("S0-78")
def test_the_copy_that_went_all_the_way_round_wins_when_the_direct_channels_are_slow(
    subject: MakeCore,
) -> None:
    (topology, case) = next(
        (topology, case)
        for topology in TOPOLOGIES
        for case in topology["case"]
        if "delayed" in case
    )
    delayed = case["delayed"]
    slow = {(each["from"], each["to"]) for each in delayed["slow_channels"]}
    grid = grid_of(subject, topology)
    flood_everywhere(grid, case["scope_level"])
    grid.publish_at(case["publisher_at"], event(1, NOW_NS))
    flying: list[tuple[int, str, str, bytes]] = []
    arrivals: list[tuple[int, str, str, bool]] = []

    def send_all(start: str, leaves_at: int) -> None:
        for way, channel_id in grid.channel_ids.items():
            if way[0] == start:
                time = delayed["slow_channel_time" if way in slow else "channel_time"]
                for _, octets in grid.cores[start].take_output(channel_id):
                    heapq.heappush(flying, (leaves_at + time, way[1], start, octets))

    send_all(case["publisher_at"], 0)
    while flying:
        now, router, start, octets = heapq.heappop(flying)
        before = grid.cores[router].counters()["duplicate"]
        grid.cores[router].inject(octets, now_ns=NOW_NS)
        is_first = grid.cores[router].counters()["duplicate"] == before
        arrivals.append((now, router, start, is_first))
        send_all(router, now + delayed["router_time"])
    first, late = delayed["first_at"], delayed["late_at"]
    assert (first["time"], first["router"], first["from"], True) in arrivals
    assert (late["time"], late["router"], late["from"], False) in arrivals
    assert sum(not is_first for *_, is_first in arrivals) == delayed["drops"]


@pytest.mark.feature("S0-80")
def test_outside_the_scope_the_filtered_stream_still_flows(subject: MakeCore) -> None:
    (topology, case) = next(
        (topology, case)
        for topology in TOPOLOGIES
        for case in topology["case"]
        if "outside" in case
    )
    outside = case["outside"]
    grid = grid_of(subject, topology)
    way = (outside["channel"]["from"], outside["channel"]["to"])
    route = Route(grid.channel_ids[way], (Term(outside["every"]),))
    inside = {case["publisher_at"], *case["reached"]}
    for name, core in grid.cores.items():
        floods = (Flood(case["scope_level"]),) if name in inside else ()
        routes = (route,) if name == way[0] else ()
        core.commit([periodic(1, PERIOD_MS, floods=floods, routes=routes)])
    received = []
    for slot in outside["slots_sent"]:
        grid.now_ns = slot * PERIOD_MS * MS + 2
        grid.publish_at(case["publisher_at"], event(1, slot * PERIOD_MS * MS))
        moved = [
            (each, events) for travelled in grid.rounds() for each, events in travelled.items()
        ]
        left = [(each, events) for each, events in moved if each[1] not in inside]
        assert all(each == way for each, _ in left)
        received += [created // (PERIOD_MS * MS) for _, events in left for _, created in events]
    assert received == outside["slots_received"]


def two_way_grid(make_core: MakeCore, rng: random.Random) -> Grid:
    """A random connected graph of twelve routers; every link is a channel in each direction."""
    names = [f"r{i:02}" for i in range(12)]
    links = {(names[rng.randrange(i)], names[i]) for i in range(1, 12)}
    while len(links) < 20:
        start, end = sorted(rng.sample(names, 2))
        links.add((start, end))
    ordered = sorted(links)
    return Grid(make_core, [way for a, b in ordered for way in (Way(a, b), Way(b, a))])


@pytest.mark.feature("S0-79", "S1-76")
@pytest.mark.parametrize("seed", range(5))
def test_a_flood_never_goes_back_and_passes_each_channel_at_most_once(
    subject: MakeCore, seed: int
) -> None:
    grid = two_way_grid(subject, random.Random(seed))
    flood_everywhere(grid, 1)
    grid.publish_at("r00", event(1, NOW_NS))
    came_from: dict[str, str] = {}
    used: Counter[tuple[str, str]] = Counter()
    for travelled in grid.rounds():
        for start, end in travelled:
            used[start, end] += 1
            came_from.setdefault(end, start)
    assert set(grid.counts("flooded").values()) == {1}
    assert set(used.values()) == {1}
    for router, sender in came_from.items():
        if router != "r00":
            assert (router, sender) not in used
    for core in grid.cores.values():
        assert_reconciled(core)


@pytest.mark.feature("S1-76", "S0-76")
@pytest.mark.parametrize("scope_height", [1, 2, 3])
def test_the_level_of_a_channel_is_the_depth_of_the_lowest_broker_above_both_ends(
    subject: MakeCore, scope_height: int
) -> None:
    """Routers are named by their brokers from the root down: two times two clouds of two."""
    tree_height = 3
    routers = [f"{top}{leaf}{router}" for top in "xy" for leaf in "01" for router in "ab"]

    def depth(a: str, b: str) -> int:
        return next(i for i in range(tree_height) if a[i] != b[i])

    ways = [Way(a, b, depth(a, b)) for a in routers for b in routers if a != b]
    grid = Grid(subject, ways)
    flood_everywhere(grid, tree_height - scope_height)
    grid.publish_at("x0a", event(1, NOW_NS))
    used = {way for travelled in grid.rounds() for way in travelled}
    reached = {"x0a", *(end for _, end in used)}
    common = "x0a"[: tree_height - scope_height]
    assert reached == {router for router in routers if router.startswith(common)}
    assert all(tree_height - depth(*way) <= scope_height for way in used)


@pytest.mark.feature("S3-8")
def test_a_flood_serves_all_channels_of_its_level_once_and_other_variables_as_before(
    subject: MakeCore,
) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_source(50, back_channel=3)
    for channel_id, level, floods in ((1, 2, True), (2, 2, True), (3, 1, True), (4, 0, True)):
        core.open_channel(ChannelSpec(channel_id, level=level, floods=floods))
    core.open_channel(ChannelSpec(5, level=2, floods=False))
    every_second = tuple(Route(i, (Term(2),)) for i in range(1, 6))
    core.commit(
        [
            periodic(1, PERIOD_MS, floods=(Flood(1),), routes=every_second),
            periodic(2, PERIOD_MS, routes=every_second),
        ]
    )
    for slot in range(4):
        created_ns = NOW_NS + slot * PERIOD_MS * MS
        both = (event(1, created_ns), event(2, created_ns))
        core.inject(datagram(50, *both), now_ns=created_ns)
        core.inject(datagram(50, *both), now_ns=created_ns)
    slots: dict[int, list[list[int]]] = {}
    for channel_id in range(1, 6):
        events = told(core.take_output(channel_id))
        slots[channel_id] = [
            [(created - NOW_NS) // (PERIOD_MS * MS) for v, created in events if v == variable_id]
            for variable_id in (1, 2)
        ]
    assert slots[1] == slots[2] == [[0, 1, 2, 3], [0, 2]]
    assert slots[3] == [[], [0, 2]]  # Back where it came from; also the route gives way.
    assert slots[4] == slots[5] == [[0, 2], [0, 2]]  # A higher level, and no flooding channel.
    assert core.counters()["duplicate"] == 8
    assert_reconciled(core, range(1, 6))


def test_of_several_active_floods_the_widest_scope_holds(subject: MakeCore) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    for channel_id, level in ((1, 2), (2, 1), (3, 0)):
        core.open_channel(ChannelSpec(channel_id, level=level, floods=True))
    core.commit([periodic(1, PERIOD_MS, floods=(Flood(2, 0b0010), Flood(0, 0b0100), Flood(1, 8)))])
    served = []
    for slot, modes in enumerate((0, 0b0010, 0b1010, 0b1110, 0b0101)):
        core.set_modes(modes)
        created_ns = NOW_NS + slot * PERIOD_MS * MS
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=created_ns)
        served.append([i for i in (1, 2, 3) if core.take_output(i)])
    assert served == [[], [1], [1, 2], [1, 2, 3], [1, 2, 3]]
    assert core.counters()["flooded"] == 4
