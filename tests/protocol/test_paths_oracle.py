"""The path search against an integer programme, on real and random topologies.

Bounds are drawn about the least latency that any paths keep, where a verdict is hardest. Time is
that of the thread, so that a busy machine does not end a search early.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

import pytest

from gridstat.model.paths import Found, NotFound, PathGraph, disjoint_paths
from lab.path_comparison import complaint
from lab.path_oracle import Demand, verdict
from lab.topologies import FAMILIES, Topology, random_topology, real, real_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

SEARCH_S_MAX = 0.1
PLANTED = 8
EDGES = ((1, 1), (1, 1), (2, 1), (1, 2), (2, 2))
REAL_SMALL = real_keys(6, 50)
REAL_LARGE = real_keys(100, 300)
SHARES = 8
"""The comparison is cut into so many tests, each over every eighth topology."""

ATTEMPTS = 3
"""A shared machine can make any one of them slow; the search is judged by its quickest."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One demand, asked of both."""

    topology: Topology
    demand: Demand
    answer: Found | NotFound
    cost_least: int | None
    seconds: float


@pytest.mark.feature("S0-48", "S0-50", "S1-4")
@pytest.mark.parametrize("share", range(SHARES))
def test_the_verdict_is_that_of_the_oracle_at_the_same_cost(share: int) -> None:
    compared = [_compared(topology) for topology in _small_topologies(share)]
    assert len(compared) >= 208 // SHARES
    assert {type(one.answer) for one in compared} == {Found, NotFound}
    for one in compared:
        assert one.seconds <= SEARCH_S_MAX, f"{one}"
        if one.cost_least is None:
            assert isinstance(one.answer, NotFound), f"{one}"
            assert one.answer.reason != "budget", f"{one}"
        else:
            assert isinstance(one.answer, Found), f"{one}"
            assert complaint(one.topology, one.demand, one.answer) is None, f"{one}"
            assert sum(path.cost for path in one.answer.paths) == one.cost_least, f"{one}"


@pytest.mark.feature("S0-48", "S0-50")
@pytest.mark.parametrize("paths", [2, 3])
def test_in_a_large_cloud_paths_that_exist_are_found(paths: int) -> None:
    found, asked = 0, 0
    for topology in _large_topologies():
        random = Random(f"{topology.name}/{paths}")
        graph = topology.graph()
        for _ in range(3):
            demand = _planted(topology, graph, random, paths)
            if demand is None:
                continue
            answer = _ask(graph, demand)
            asked += 1
            if isinstance(answer, Found):
                found += 1
                assert complaint(topology, demand, answer) is None
    assert asked >= 50
    assert found >= 0.99 * asked


def _compared(topology: Topology) -> Compared:
    random = Random(topology.name)
    graph = topology.graph()
    demand = _demand(topology, graph, random)
    answer, seconds = min(
        (_timed(graph, demand) for _ in range(ATTEMPTS)), key=lambda timed: timed[1]
    )
    found = verdict(topology, demand)
    if found is not None and isinstance(answer, Found) and len(demand.bounds_us) > 1:
        assert answer.is_node_disjoint == found.is_node_disjoint
    return Compared(topology, demand, answer, None if found is None else found.cost, seconds)


def _timed(graph: PathGraph, demand: Demand) -> tuple[Found | NotFound, float]:
    before_s = time.thread_time()
    answer = _ask(graph, demand)
    return answer, time.thread_time() - before_s


def _demand(topology: Topology, graph: PathGraph, random: Random) -> Demand:
    """Random edges, and bounds about the least that some paths keep."""
    sources, targets = _edges(topology, random)
    paths = random.choice((1, 2, 2, 2, 3))
    refusal = disjoint_paths(graph, sources, targets, (0,) * paths, clock=time.thread_time)
    assert isinstance(refusal, NotFound)
    least_us = refusal.latency_us_best or 1_000_000
    bound_us = round(least_us * random.uniform(0.95, 1.25))
    bounds_us = [bound_us] * paths
    if random.random() < 0.3:
        bounds_us = [round(bound * random.uniform(0.8, 1.0)) for bound in bounds_us]
    return Demand(sources, targets, tuple(sorted(bounds_us)))


def _planted(topology: Topology, graph: PathGraph, random: Random, paths: int) -> Demand | None:
    """A demand that can be met: its bounds are those of the tightest of some disjoint paths."""
    sources, targets = _edges(topology, random)
    tightest: list[int] | None = None
    for _ in range(PLANTED):
        prices = {
            arc.channel_id: round(arc.latency_us * random.uniform(0.7, 1.4))
            for arc in topology.arcs
        }
        answer = disjoint_paths(
            graph,
            sources,
            targets,
            (1 << 32,) * paths,
            cheap_channels=prices,
            clock=time.thread_time,
        )
        if isinstance(answer, NotFound):
            return None
        latencies_us = [path.latency_us for path in answer.paths]
        if tightest is None or latencies_us[-1] < tightest[-1]:
            tightest = latencies_us
    assert tightest is not None
    return Demand(sources, targets, tuple(tightest))


def _edges(topology: Topology, random: Random) -> tuple[tuple[str, ...], tuple[str, ...]]:
    sources, targets = random.choice(EDGES)
    names = random.sample(topology.routers, sources + targets)
    return tuple(names[:sources]), tuple(names[sources:])


def _ask(graph: PathGraph, demand: Demand) -> Found | NotFound:
    return disjoint_paths(
        graph,
        demand.sources,
        demand.targets,
        demand.bounds_us,
        budget_s=SEARCH_S_MAX,
        clock=time.thread_time,
    )


def _small_topologies(share: int) -> Iterator[Topology]:
    for index in range(share, 104, SHARES):
        yield real(REAL_SMALL[index * len(REAL_SMALL) // 104], index)
        routers = 8 + 2 * (index % 22)
        yield random_topology(FAMILIES[index % len(FAMILIES)], routers, index)


def _large_topologies() -> Iterator[Topology]:
    for index in range(12):
        yield real(REAL_LARGE[index * len(REAL_LARGE) // 12], index)
        routers = 100 + 18 * index
        yield random_topology(FAMILIES[index % len(FAMILIES)], routers, index)
