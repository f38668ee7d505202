"""Every set of paths of a tiny graph, tried one by one: the oracle for graphs of seven routers.

It knows the meaning of an answer and nothing of the search; unlike the search it also tries paths
that pass through an edge router, to show that none of them is missed.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths import Arc

KINDS = ((True, True), (True, False), (False, True), (False, False))
"""Node-disjoint or not, and edges spread or not, best first."""


@dataclass(frozen=True, slots=True)
class TinyCloud:
    """Arcs and router latencies of a graph that is small enough."""

    arcs: tuple[Arc, ...]
    router_latency_us: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TinyPath:
    """One simple path: routers, the arcs between them."""

    routers: tuple[str, ...]
    arcs: tuple[Arc, ...]
    latency_us: int

    @property
    def cost(self) -> int:
        return sum(arc.cost for arc in self.arcs)


@dataclass(frozen=True, slots=True)
class BestSet:
    """The least cost of the best kind of disjointness."""

    cost: int
    is_node_disjoint: bool
    is_spread: bool


def best_set(
    cloud: TinyCloud,
    sources: Sequence[str],
    targets: Sequence[str],
    bounds_us: Sequence[int],
    single: AbstractSet[str] = frozenset(),
) -> BestSet | None:
    paths = sorted(_paths(cloud, set(sources), set(targets)), key=lambda path: path.latency_us)
    found: dict[tuple[bool, bool], int] = {}
    for chosen in combinations(paths, len(bounds_us)):
        if any(path.latency_us > at for path, at in zip(chosen, bounds_us, strict=True)):
            continue
        if _shared(chosen) & single:
            continue
        channels = [arc.channel_id for path in chosen for arc in path.arcs]
        if len(channels) != len(set(channels)) or _share_risk(chosen):
            continue
        cost = sum(path.cost for path in chosen)
        is_spread = _is_spread(chosen, sorted(set(sources)), sorted(set(targets)))
        is_disjoint = not _shared(chosen) - {*sources, *targets}
        for kind in KINDS:
            if (is_disjoint or not kind[0]) and (is_spread or not kind[1]):
                found[kind] = min(cost, found.get(kind, cost))
    for kind in KINDS:
        if kind in found:
            return BestSet(found[kind], is_node_disjoint=kind[0], is_spread=kind[1])
    return None


def paths_max(
    cloud: TinyCloud,
    sources: Sequence[str],
    targets: Sequence[str],
    most: int,
    single: AbstractSet[str] = frozenset(),
) -> int:
    """Return how many paths, up to `most`, share no channel."""
    never = 1 << 40
    return max(
        count
        for count in range(most + 1)
        if count == 0 or best_set(cloud, sources, targets, [never] * count, single)
    )


def _is_spread(chosen: Sequence[TinyPath], sources: list[str], targets: list[str]) -> bool:
    """Edges used evenly, none passed through, and a common one a path by itself."""
    edges = {*sources, *targets}
    if any(edges.intersection(path.routers[1:-1]) for path in chosen):
        return False
    alone = {path.routers[0] for path in chosen if not path.arcs}
    return (
        set(sources) & set(targets) <= alone
        and _is_even([path.routers[0] for path in chosen], len(sources))
        and _is_even([path.routers[-1] for path in chosen], len(targets))
    )


def _is_even(used: list[str], routers: int) -> bool:
    return max(used.count(router) for router in used) <= -(-len(used) // routers)


def _shared(chosen: Sequence[TinyPath]) -> set[str]:
    return {
        router
        for one, other in combinations(chosen, 2)
        for router in set(one.routers) & set(other.routers)
    }


def _share_risk(chosen: Sequence[TinyPath]) -> bool:
    run = [{risk for arc in path.arcs for risk in arc.risks} for path in chosen]
    return any(one & other for one, other in combinations(run, 2))


def _paths(cloud: TinyCloud, sources: set[str], targets: set[str]) -> Iterator[TinyPath]:
    ways: list[tuple[tuple[str, ...], tuple[Arc, ...]]] = [((source,), ()) for source in sources]
    while ways:
        routers, arcs = ways.pop()
        if routers[-1] in targets:
            latency_us = sum(arc.latency_us for arc in arcs)
            latency_us += sum(cloud.router_latency_us.get(router, 0) for router in routers)
            yield TinyPath(routers, arcs, latency_us)
        ways.extend(
            ((*routers, arc.to_router), (*arcs, arc))
            for arc in cloud.arcs
            if arc.from_router == routers[-1] and arc.to_router not in routers
        )
