"""Limited flooding: first copy only, never back, never out of the level. Two subjects."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import Any

import pytest

from gridstat.core.rows import ChannelSpec, Flood, Route, Term
from gridstat.model.flooding import dropped_copies
from tests.golden.load import load_golden
from tests.protocol.flooded_grids import (
    PERIOD_MS,
    channels_in_scope,
    directed_grid,
    flood_everywhere,
    reached_on_paper,
    two_way_grid,
)
from tests.protocol.flooded_scopes import FloodedScope, Where
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


def grid_of(make_core: MakeCore, topology: dict[str, Any]) -> Grid:
    ways = [Way(each["from"], each["to"], each["level"]) for each in topology["channels"]]
    return Grid(make_core, ways)


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


@pytest.mark.feature("S0-139")
def test_with_a_divisor_only_its_slots_flood_and_contracts_keep_theirs(subject: MakeCore) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    for channel_id in (1, 2):
        core.open_channel(ChannelSpec(channel_id, level=2, floods=True))
    core.open_channel(ChannelSpec(3, level=2, floods=False))
    routes = (Route(1, (Term(2),)), Route(3, (Term(2),)))
    core.commit([periodic(1, PERIOD_MS, floods=(Flood(1, every=3),), routes=routes)])
    for slot in range(7):
        created_ns = slot * PERIOD_MS * MS
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=created_ns + 2)
    slots = {
        channel_id: [created // (PERIOD_MS * MS) for _, created in told(core.take_output(i))]
        for channel_id in (1, 2, 3)
        for i in (channel_id,)
    }
    assert slots == {1: [0, 2, 3, 4, 6], 2: [0, 3, 6], 3: [0, 2, 4, 6]}
    assert core.counters()["flooded"] == 3
    assert_reconciled(core, (1, 2, 3))


@pytest.mark.feature("S0-83")
@pytest.mark.parametrize("seed", range(20))
def test_dropped_copies_are_channels_in_scope_less_reached_routers(
    subject: MakeCore, seed: int
) -> None:
    """Channels are counted on paper: one that carries nothing is missed."""
    rng = random.Random(seed)
    grid = directed_grid(subject, rng)
    scope = rng.randrange(3)
    flood_everywhere(grid, scope)
    start = min(grid.cores)
    grid.publish_at(start, event(1, NOW_NS))
    used = Counter(way for travelled in grid.rounds() for way in travelled)
    reached = {name for name, count in grid.counts("flooded").items() if count} - {start}
    assert reached == reached_on_paper(grid, start, scope) - {start}
    in_scope = channels_in_scope(grid, {start, *reached}, scope)
    assert dropped_copies(len(in_scope), len(reached)) == grid.counts("duplicate").total()
    assert used == Counter(in_scope)


def test_a_channel_that_swallows_its_copies_is_missed(subject: MakeCore) -> None:
    """Check that the formula above can fail, whichever channel it is."""
    for silent in directed_grid(subject, random.Random(1)).channel_ids:
        grid = directed_grid(subject, random.Random(1))
        flood_everywhere(grid, 0)
        start = min(grid.cores)
        grid.publish_at(start, event(1, NOW_NS))
        grid.swallowed = {silent}
        grid.rounds()
        reached = {name for name, count in grid.counts("flooded").items() if count}
        in_scope = channels_in_scope(grid, reached, 0)
        is_right = dropped_copies(len(in_scope), len(reached) - 1) == (
            grid.counts("duplicate").total()
        )
        assert is_right == (silent[0] not in reached), silent


@pytest.mark.feature("S0-139")
@pytest.mark.parametrize("seed", range(10))
def test_inside_a_flood_routes_cost_nothing_and_count_at_borders_and_edges_alone(
    subject: MakeCore, seed: int
) -> None:
    """The same deliveries and copies from rows without any route between routers of the scope."""
    told_of = {}
    for where in Where:
        found = FloodedScope(subject, random.Random(seed), where)
        for slot in range(12):
            found.publish(slot)
        told_of[where] = found
    lean, full, none = told_of[Where.BORDERS], told_of[Where.EVERYWHERE], told_of[Where.EDGES]
    assert lean.wanted == full.wanted == none.wanted
    assert lean.delivered() == full.delivered() == full.wanted
    assert lean.copies == full.copies
    assert lean.grid.counts("duplicate") == full.grid.counts("duplicate")
    assert lean.routes_inside == 0 < full.routes_inside
    # At borders routing adds to flooding: without it no router outside receives an event.
    outside = {name for name in full.wanted if not full.is_inside(name)}
    assert {name for name, slots in none.delivered().items() if not slots} == outside != set()
