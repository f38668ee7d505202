"""Processor time of a search for disjoint paths: `python -m benchmarks.micro.paths`.

Topologies and edge routers are random. `wide` bounds are kept by the cheapest paths, as in most
requests; `tight` bounds are near the least latency of any paths. The graphs are warm: the
distances to an edge router are computed once, at its first use.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from random import Random
from typing import TYPE_CHECKING

from gridstat.model.paths import Found, NotFound, PathGraph, disjoint_paths
from lab.topologies import FAMILIES, Topology, random_topology

if TYPE_CHECKING:
    from collections.abc import Iterator

SEARCHES = 400
SIZES = (20, 50, 100, 200, 300)
WIDE_US = 10_000_000


@dataclass(frozen=True, slots=True)
class Load:
    """One row of the printed table."""

    routers: int
    paths: int
    edges: int
    is_tight: bool


@dataclass(frozen=True, slots=True)
class Question:
    """One search: its graph, its ends and its bounds."""

    graph: PathGraph
    sources: list[str]
    targets: list[str]
    bounds_us: list[int]


def loads() -> Iterator[Load]:
    for routers in SIZES:
        yield Load(routers, paths=1, edges=1, is_tight=False)
        yield Load(routers, paths=2, edges=1, is_tight=False)
        yield Load(routers, paths=2, edges=2, is_tight=False)
        yield Load(routers, paths=2, edges=2, is_tight=True)
        yield Load(routers, paths=3, edges=2, is_tight=True)


def questions(load: Load) -> list[Question]:
    random = Random(f"{load}")
    clouds: list[tuple[Topology, PathGraph]] = []
    for seed, family in enumerate(FAMILIES):
        topology = random_topology(family, load.routers, seed)
        clouds.append((topology, topology.graph()))
    found: list[Question] = []
    while len(found) < SEARCHES:
        topology, graph = clouds[len(found) % len(clouds)]
        names = random.sample(topology.routers, 2 * load.edges)
        asked = Question(graph, names[: load.edges], names[load.edges :], [WIDE_US] * load.paths)
        if load.is_tight:
            factor = random.uniform(0.95, 1.25)
            asked = replace(asked, bounds_us=[round(least_us(asked) * factor)] * load.paths)
        found.append(asked)
    return found


def least_us(asked: Question) -> int:
    """Return about the least bound for which there are paths."""
    answer = ask(replace(asked, bounds_us=[0] * len(asked.bounds_us)))
    assert isinstance(answer, NotFound)
    return answer.latency_us_best or WIDE_US


def ask(question: Question) -> Found | NotFound:
    return disjoint_paths(
        question.graph,
        question.sources,
        question.targets,
        question.bounds_us,
        clock=time.thread_time,
    )


def main() -> None:
    print(f"{'routers':>8}{'paths':>6}{'edges':>6} bounds   found  p50_ms  p99_ms  max_ms")
    for load in loads():
        asked = questions(load)
        for question in asked:
            ask(question)
        seconds: list[float] = []
        found = 0
        for question in asked:
            before_s = time.thread_time()
            answer = ask(question)
            seconds.append(time.thread_time() - before_s)
            found += isinstance(answer, Found)
        seconds.sort()
        p50_ms, p99_ms, max_ms = (
            1e3 * seconds[at] for at in (SEARCHES // 2, SEARCHES * 99 // 100, SEARCHES - 1)
        )
        bounds = "tight" if load.is_tight else "wide"
        print(
            f"{load.routers:8}{load.paths:6}{load.edges:6} {bounds:8}"
            f"{found:6}{p50_ms:8.3f}{p99_ms:8.3f}{max_ms:8.3f}"
        )


if __name__ == "__main__":
    main()
