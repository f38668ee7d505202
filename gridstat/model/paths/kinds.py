"""Kinds of disjointness, best first, and the terminals of paths of each kind.

Kinds: no router shared and edges spread evenly; no inner router shared; no channel shared and edges
spread; no channel shared. A path starts and ends at an edge router of publisher and subscriber and
passes through none of them: a path through one could start or end there instead.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from gridstat.model.paths.mask import Terminals
from gridstat.model.paths.problem import Route

if TYPE_CHECKING:
    from gridstat.model.paths.mask import Mask


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Edge routers of both ends by number, and the latency bounds in ascending order."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bounds_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """Kind of disjointness: edges spread evenly or not, inner routers shared or not."""

    is_spread: bool
    is_node_disjoint: bool


LEAST = Kind(is_spread=False, is_node_disjoint=False)


def kinds_of(query: SearchQuery) -> list[Kind]:
    """Return the kinds that differ for this query, best first; the last is the least strict."""
    if len(query.bounds_us) == 1:
        return [LEAST]
    has_choice = len(query.sources) > 1 or len(query.targets) > 1
    return [
        Kind(is_spread, is_node_disjoint)
        for is_node_disjoint in (True, False)
        for is_spread in ((True, False) if has_choice else (False,))
    ]


def whole_choices(mask: Mask, query: SearchQuery, kind: Kind) -> list[list[tuple[Route, ...]]]:
    """Return choices of routers common to both ends, each a path by itself, in groups to try.

    Such a path costs nothing, so an answer without it can be replaced by one with it if the bounds
    allow: most of them first, then fewer. Spread edges require all of them.
    """
    latencies_us = mask.graph.router_latencies_us
    common = [router for router in query.sources if router in query.targets]
    routes = [Route(router, (), latencies_us[router], 0) for router in common]
    units = len(query.bounds_us)
    if mask.is_timed:
        sizes = range(min(len(routes), units) + 1)
        return [[some for size in sizes for some in combinations(routes, size)]]
    if kind.is_spread:
        return [[tuple(routes)]]
    routes = [route for route in routes if route.latency_us <= query.bounds_us[-1]]
    routes.sort(key=lambda route: route.latency_us)
    if units == 1:
        return [[tuple(routes[:1])]]
    fewer: list[tuple[Route, ...]] = [(route,) for route in routes] if len(routes) > 1 else []
    return [[tuple(routes)], fewer]


def terminals_of(query: SearchQuery, kind: Kind, whole: tuple[Route, ...]) -> list[Terminals]:
    """Return the terminals of the other paths; an empty list if no other path is needed."""
    count = len(query.bounds_us)
    units = count - len(whole)
    used = {route.start for route in whole}
    starts, ends = (
        tuple(
            (router, capacity)
            for router in routers
            if (
                capacity := _capacity(count, len(routers), kind)
                - (kind.is_spread and router in used)
            )
        )
        for routers in (query.sources, query.targets)
    )
    edges = frozenset(query.sources + query.targets)
    # A path from a router to itself is a cycle: a single start is no end, and vice versa.
    if len(starts) == 1:
        ends = tuple(end for end in ends if end[0] != starts[0][0])
    if len(ends) == 1:
        starts = tuple(start for start in starts if start[0] != ends[0][0])
    if not units or not starts or not ends:
        return []
    if units > 1 or not {router for router, _ in starts} & {router for router, _ in ends}:
        return [Terminals(starts, ends, units, edges, kind.is_node_disjoint)]
    # Cycles are removed from several units; a single unit is searched for each start.
    return [
        Terminals((start,), others, units, edges, kind.is_node_disjoint)
        for start in starts
        if (others := tuple(end for end in ends if end[0] != start[0]))
    ]


def _capacity(count: int, routers: int, kind: Kind) -> int:
    return -(-count // routers) if kind.is_spread else count
