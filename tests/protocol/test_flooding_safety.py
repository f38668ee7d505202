"""Flooding does no harm: a forged stamp silences nothing, starts and stops lose nothing."""

from __future__ import annotations

import random

import pytest

from gridstat.core.reference_window import PACE_BURST_NS, PACE_JITTER_NS
from gridstat.core.rows import ChannelSpec, Flood, Route, Term
from gridstat.model.flooding import (
    BURST_NS,
    FLOOD_EVENTS_MAX,
    FLOOD_HOLD_NS,
    flood_interval_ms_min,
)
from tests.protocol.flooded_grids import PERIOD_MS, flood_everywhere, two_way_grid
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    Grid,
    MakeCore,
    Way,
    aperiodic,
    datagram,
    event,
    periodic,
    told,
)

FORGED_NS = NOW_NS + 365 * 86_400 * 1_000 * MS
POSSIBLE_NS = NOW_NS + SMALL.stamp_bound_ns
"""The first hop would have let this stamp pass."""


def stream(first: int, count: int) -> list[bytes]:
    return [event(1, NOW_NS + slot * PERIOD_MS * MS) for slot in range(first, first + count)]


@pytest.mark.feature("S0-84")
@pytest.mark.parametrize(
    ("forged_ns", "counter"), [(FORGED_NS, "policed_stamp"), (POSSIBLE_NS, "policed_jump")]
)
def test_a_forged_future_event_silences_no_flooded_variable(
    subject: MakeCore, forged_ns: int, counter: str
) -> None:
    """Behind the first hop one such event has no say: a jump takes two that agree."""
    grid = two_way_grid(subject, random.Random(1))
    flood_everywhere(grid, 1)
    heard: list[int] = []
    for at, one in enumerate(stream(0, 20)):
        grid.now_ns = NOW_NS + at * PERIOD_MS * MS
        grid.publish_at("r00", one)
        if at == 9:
            victim = grid.cores["r05"]
            source = next(i for (_, end), i in grid.channel_ids.items() if end == "r05")
            victim.inject(datagram(source, event(1, forged_ns)), now_ns=grid.now_ns)
        grid.rounds()
        heard.append(len([name for name, count in grid.counts("flooded").items() if count > at]))
    assert heard == [len(grid.cores)] * 20
    assert grid.counts(counter).total() == 1


@pytest.mark.feature("S0-84")
def test_a_router_that_heard_a_forged_event_first_recovers_with_the_next_one(
    subject: MakeCore,
) -> None:
    """The worst place: a window that has seen nothing else; it follows the router's own clock."""
    core = subject(SMALL)
    core.open_source(50)
    core.open_channel(ChannelSpec(1, floods=True))
    core.commit([periodic(1, PERIOD_MS, floods=(Flood(1),))])
    core.inject(datagram(50, event(1, POSSIBLE_NS)), now_ns=NOW_NS)
    flooded_at = []
    for at, one in enumerate(stream(0, 200)):
        before = core.counters()["flooded"]
        core.inject(datagram(50, one), now_ns=NOW_NS + at * PERIOD_MS * MS)
        if core.counters()["flooded"] > before:
            flooded_at.append(at)
    assert flooded_at == list(range(200))


@pytest.mark.feature("S0-84")
def test_the_first_hop_bounds_the_stamp_of_a_flooded_event(subject: MakeCore) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_channel(ChannelSpec(1, floods=True))
    core.commit([periodic(1, PERIOD_MS, floods=(Flood(1),))])
    core.inject(datagram(PUBLISHER, event(1, FORGED_NS)), now_ns=NOW_NS)
    core.inject(datagram(PUBLISHER, event(1, NOW_NS)), now_ns=NOW_NS)
    assert core.counters()["policed_stamp"] == 1
    assert [created for _, created in told(core.take_output(1))] == [NOW_NS]


@pytest.mark.feature("S0-81")
@pytest.mark.parametrize("seed", range(6))
def test_subscribers_miss_nothing_while_routers_begin_and_end_to_flood_one_by_one(
    subject: MakeCore, seed: int
) -> None:
    """Two contracts, one of them at every second slot; routers change in any order, at any time."""
    rng = random.Random(seed)
    grid = two_way_grid(subject, rng)
    ends = {"r10": 1, "r11": 2}
    routes: dict[str, dict[int, Route]] = {name: {} for name in grid.cores}
    for number, (edge, every) in enumerate(ends.items()):
        down = 900 + number
        grid.cores[edge].open_channel(ChannelSpec(down, floods=False))
        routes[edge][down] = Route(down, (Term(every),))
        for start, end in shortest_way(grid, "r00", edge):
            channel_id = grid.channel_ids[start, end]
            terms = routes[start].get(channel_id, Route(channel_id, ())).terms
            routes[start][channel_id] = Route(channel_id, (*terms, Term(every)))

    def order(name: str, *, floods: bool) -> None:
        row = periodic(
            1, PERIOD_MS, floods=(Flood(1),) if floods else (), routes=tuple(routes[name].values())
        )
        grid.cores[name].commit([row])

    for name in grid.cores:
        order(name, floods=False)
    begins, stops = (rng.sample(sorted(grid.cores), len(grid.cores)) for _ in range(2))
    changes = [(name, True) for name in begins] + [(name, False) for name in stops]
    slots = len(changes) + 4
    for slot in range(slots):
        grid.now_ns = NOW_NS + slot * PERIOD_MS * MS
        grid.publish_at("r00", event(1, grid.now_ns))
        for _ in range(rng.randrange(3)):
            grid.round()  # A change may come while an event is on its way.
        if slot < len(changes):
            order(changes[slot][0], floods=changes[slot][1])
        grid.rounds()
    for number, (edge, every) in enumerate(ends.items()):
        heard = [created for _, created in told(grid.cores[edge].take_output(900 + number))]
        wanted = [NOW_NS + slot * PERIOD_MS * MS for slot in range(slots)]
        first = NOW_NS // (PERIOD_MS * MS)
        assert heard == [at for i, at in enumerate(wanted) if (first + i) % every == 0]


def shortest_way(grid: Grid, start: str, end: str) -> list[tuple[str, str]]:
    came: dict[str, str] = {start: ""}
    for name in (queue := [start]):
        for a, b in grid.channel_ids:
            if a == name and b not in came:
                came[b] = a
                queue.append(b)
    way = []
    while came[end]:
        way.append((came[end], end))
        end = came[end]
    return way[::-1]


def ring_of_three(make_core: MakeCore, interval_ns: int, *, is_belated: bool = False) -> Grid:
    """Every router to every other, so that copies come round both ways; an alert floods."""
    grid = Grid(make_core, [Way(one, other) for one in "abc" for other in "abc" if one != other])
    row = aperiodic(
        1,
        is_urgent=True,
        interval_ns_min=interval_ns,
        is_stamp_exempt=is_belated,
        floods=(Flood(1),),
    )
    for core in grid.cores.values():
        core.commit([row])
    return grid


def test_more_belated_alerts_at_once_than_a_router_remembers_die_out(subject: MakeCore) -> None:
    """Their copies would come round when the first of them is forgotten, and flood for ever."""
    grid = ring_of_three(subject, MS, is_belated=True)
    count = FLOOD_EVENTS_MAX + 70
    events = [event(1, NOW_NS - (count - at) * MS, sequence=at) for at in range(count)]
    grid.publish_at("a", *events)
    grid.rounds()
    assert grid.counts("flooded") == dict.fromkeys("abc", FLOOD_EVENTS_MAX - 1)
    assert grid.cores["a"].counters()["flood_withheld"] >= 71
    grid.now_ns += FLOOD_HOLD_NS
    grid.publish_at("a", event(1, NOW_NS + MS))
    grid.rounds()
    assert grid.counts("flooded") == dict.fromkeys("abc", FLOOD_EVENTS_MAX)


@pytest.mark.parametrize("is_belated", [False, True])
def test_no_alert_that_may_flood_is_dropped_or_comes_round(
    subject: MakeCore, *, is_belated: bool
) -> None:
    """Publish at the shortest interval that brokers allow, with a hold between copies."""
    interval_ns = flood_interval_ms_min(is_belated=is_belated) * MS
    grid = ring_of_three(subject, interval_ns, is_belated=is_belated)
    count = 4 * FLOOD_EVENTS_MAX
    at_once = BURST_NS // interval_ns if is_belated else 0
    hop_events = FLOOD_HOLD_NS // 2 // interval_ns
    for at in range(count):
        grid.publish_at("a", event(1, NOW_NS + (at - at_once) * interval_ns, sequence=at))
        if at >= at_once:
            grid.now_ns += interval_ns
        if at % hop_events == 0:
            grid.round()
    grid.rounds()
    assert grid.counts("flooded") == dict.fromkeys("abc", count)


def test_the_shortest_interval_of_what_floods_fits_into_what_a_router_remembers() -> None:
    for is_belated in (False, True):
        interval_ns = flood_interval_ms_min(is_belated=is_belated) * MS
        held_ns = FLOOD_HOLD_NS + (PACE_BURST_NS if is_belated else PACE_JITTER_NS)
        assert held_ns // interval_ns + 1 <= FLOOD_EVENTS_MAX
