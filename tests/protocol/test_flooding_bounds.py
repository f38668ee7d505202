"""Bounds of floods, which cost contracts nothing: slow cycles, crowds, forged stamps."""

from __future__ import annotations

from collections import deque
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from gridstat.core.rows import PORT_DATA, PORT_URGENT, ChannelSpec, Flood, Route, Term
from gridstat.model.flooding import FLOOD_EVENTS_MAX, FLOOD_HOLD_NS, is_ahead, is_fresh
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    Grid,
    MakeCore,
    Subject,
    Way,
    aperiodic,
    datagram,
    event,
    periodic,
    told,
)

if TYPE_CHECKING:
    from gridstat.core.rows import Row

SUBSCRIBER = 901
DAY_NS = 86_400_000 * MS
STEP_MS = 4


class SlowRing:
    """Three routers in a ring, one of whose channels takes its time."""

    def __init__(self, make_core: MakeCore, row: Row, slow_ms: int) -> None:
        self.cores = {name: make_core(SMALL) for name in "abc"}
        self.delays_ms = {1: STEP_MS, 2: STEP_MS, 3: slow_ms}
        self.lines: dict[int, deque[tuple[int, bytes]]] = {1: deque(), 2: deque(), 3: deque()}
        self.port = PORT_URGENT if row.is_urgent else PORT_DATA
        for start, end, channel_id in (("a", "b", 1), ("b", "c", 2), ("c", "a", 3)):
            self.cores[start].open_channel(ChannelSpec(channel_id, floods=True))
            self.cores[end].open_source(channel_id)
        self.cores["a"].open_source(PUBLISHER, is_publisher=True)
        for core in self.cores.values():
            core.commit([row])

    def flooded(self) -> int:
        return sum(core.counters()["flooded"] for core in self.cores.values())

    def step(self, at_ms: int, *, is_published: bool) -> None:
        now_ns = NOW_NS + at_ms * MS
        if is_published:
            one = event(1, now_ns, sequence=at_ms & 0xFFFF)
            self.cores["a"].inject(datagram(PUBLISHER, one), port=self.port, now_ns=now_ns)
        for start, end, channel_id in (("a", "b", 1), ("b", "c", 2), ("c", "a", 3)):
            line = self.lines[channel_id]
            while line and line[0][0] <= at_ms:
                self.cores[end].inject(line.popleft()[1], port=self.port, now_ns=now_ns)
            sent = self.cores[start].take_output(channel_id)
            line.extend((at_ms + self.delays_ms[channel_id], octets) for _, octets in sent)


@pytest.mark.parametrize(
    ("row", "period_ms"),
    [
        (aperiodic(1, is_urgent=True, interval_ns_min=16 * MS, floods=(Flood(1),)), 16),
        (periodic(1, STEP_MS, floods=(Flood(1),)), STEP_MS),
    ],
    ids=["alerts", "periodic"],
)
def test_copies_die_out_on_a_cycle_slower_than_routers_remember(
    subject: MakeCore, row: Row, period_ms: int
) -> None:
    """Run a slow cycle, where copies returned once their event was forgotten."""
    ring = SlowRing(subject, row, slow_ms=3_000)
    for at_ms in range(0, 4_000, STEP_MS):
        ring.step(at_ms, is_published=at_ms % period_ms == 0)
    for at_ms in range(4_000, 24_000, STEP_MS):
        ring.step(at_ms, is_published=False)
    before = ring.flooded()
    for at_ms in range(24_000, 31_000, STEP_MS):
        ring.step(at_ms, is_published=False)
    assert ring.flooded() == before > 0


def crowded_router(make_core: MakeCore, floods: tuple[Flood, ...]) -> Subject:
    core = make_core(SMALL)
    core.open_source(50)
    core.open_channel(ChannelSpec(1, floods=True))
    core.open_channel(ChannelSpec(SUBSCRIBER))
    routes = (Route(SUBSCRIBER, (Term(1),)),)
    core.commit([aperiodic(1, is_urgent=True, floods=floods, routes=routes)])
    return core


@pytest.mark.parametrize("modes", [1, 1 << 9], ids=["active", "not active"])
def test_alerts_that_come_all_at_once_reach_contracts_and_flood_as_far_as_remembered(
    subject: MakeCore, modes: int
) -> None:
    """A channel that stood still for three seconds hands over all that was admitted meanwhile."""
    core = crowded_router(subject, (Flood(1, modes),))
    count = FLOOD_EVENTS_MAX + 60
    for at in range(count):
        one = event(1, NOW_NS + at * 16 * MS, sequence=at)
        core.inject(datagram(50, one), port=PORT_URGENT, now_ns=NOW_NS + 3_000 * MS)
    assert len(told(core.take_output(SUBSCRIBER))) == count
    counters = core.counters()
    flooded = FLOOD_EVENTS_MAX - 1 if modes == 1 else 0
    assert counters["flooded"] == flooded
    assert counters["flood_withheld"] == (count - flooded if modes == 1 else 0)


def test_an_event_too_old_to_flood_still_reaches_contracts(subject: MakeCore) -> None:
    core = crowded_router(subject, (Flood(1),))
    oldest_ns = NOW_NS - SMALL.stamp_bound_ns - FLOOD_HOLD_NS
    for created_ns in (oldest_ns - 1, oldest_ns):
        core.inject(datagram(50, event(1, created_ns)), port=PORT_URGENT, now_ns=NOW_NS)
    assert [created for _, created in told(core.take_output(SUBSCRIBER))] == [
        oldest_ns - 1,
        oldest_ns,
    ]
    assert [created for _, created in told(core.take_output(1))] == [oldest_ns]
    assert core.counters()["flood_withheld"] == 1


@pytest.mark.feature("S0-84")
@pytest.mark.parametrize(("period_ms", "every"), [(2_000, 1), (20, 100)])
def test_forged_future_events_silence_no_sparse_flood(
    subject: MakeCore, period_ms: int, every: int
) -> None:
    """Forge stamps between the events of a flood, when a window would follow the first stamp."""
    core = subject(SMALL)
    core.open_source(50)
    core.open_source(51)
    core.open_channel(ChannelSpec(1, floods=True))
    core.commit([periodic(1, period_ms, floods=(Flood(1, every=every),))])
    step_ns = period_ms * every * MS
    for at in range(60):
        now_ns = NOW_NS + at * step_ns
        if at % 2 == 0:
            forged = event(1, now_ns + (365 + at) * DAY_NS)
            core.inject(datagram(51, forged), now_ns=now_ns - MS)
        core.inject(datagram(50, event(1, now_ns)), now_ns=now_ns)
    assert core.counters()["flooded"] == 60
    assert core.counters()["policed_stamp"] == 30


def test_a_stamp_that_the_first_hop_allows_passes_where_a_clock_is_a_second_behind(
    subject: MakeCore,
) -> None:
    core = subject(SMALL)
    core.open_source(50)
    core.open_channel(ChannelSpec(1, floods=True))
    core.commit([aperiodic(1, floods=(Flood(1),))])
    latest_ns = NOW_NS + SMALL.stamp_bound_ns + FLOOD_HOLD_NS
    for created_ns in (latest_ns, latest_ns + 1):
        core.inject(datagram(50, event(1, created_ns)), now_ns=NOW_NS)
    assert [created for _, created in told(core.take_output(1))] == [latest_ns]
    assert core.counters()["policed_stamp"] == 1


def test_without_a_bound_on_stamps_any_may_flood() -> None:
    assert is_fresh(DAY_NS, 0)
    assert not is_ahead(DAY_NS, 0)


@pytest.mark.parametrize("every", [1, 2])
def test_no_path_seems_to_lose_what_a_flood_has_brought(subject: MakeCore, every: int) -> None:
    """The edge's own flood reaches the longer path first, and its copies never come."""
    links = [("a", "b"), ("b", "e"), ("a", "c"), ("c", "d"), ("d", "g"), ("g", "f"), ("f", "e")]
    grid = Grid(subject, [way for a, b in links for way in (Way(a, b), Way(b, a))])
    grid.cores["e"].open_channel(ChannelSpec(SUBSCRIBER))
    paths = ["abe", "acdgfe"]
    for name, core in grid.cores.items():
        hops = {hop for path in paths for hop in pairwise(path)}
        ways = sorted(grid.channel_ids[hop] for hop in hops if hop[0] == name)
        ends = [SUBSCRIBER] if name == "e" else []
        routes = tuple(Route(way, (Term(1),)) for way in ways + ends)
        floods = (Flood(1, every=every),)
        counted = 1 if name == "e" else 0
        core.commit([periodic(1, 10, routes=routes, floods=floods, counted_every=counted)])
    for at in range(600):
        grid.now_ns = NOW_NS + at * 10 * MS
        grid.publish_at("a", event(1, grid.now_ns))
        grid.rounds()
    assert len(told(grid.cores["e"].take_output(SUBSCRIBER))) == 600
    facts = grid.cores["e"].copies(1)
    assert facts is not None
    assert facts["came"][: facts["path_count"]] == [facts["passed"]] * (2 if every == 2 else 0)
    assert (facts["passed"] > 200) == (every == 2)
