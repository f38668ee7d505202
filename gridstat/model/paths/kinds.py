"""What "disjoint" may mean, best first, and where the paths of each kind start and end.

Kinds: no router shared and edges spread evenly; no inner router shared; no channel shared and edges
spread; no channel shared. A path starts and ends at an edge router of publisher and subscriber and
passes through none of them: whoever could pass through one could as well start or end there.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from gridstat.model.paths.mask import Places
from gridstat.model.paths.problem import Route

if TYPE_CHECKING:
    from gridstat.model.paths.mask import Mask


@dataclass(frozen=True, slots=True)
class Question:
    """The edges of both ends by number, and the bounds in ascending order."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bounds_us: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """How disjoint: edges spread evenly or used at will, inner routers shared or not."""

    is_spread: bool
    is_lone: bool


LEAST = Kind(is_spread=False, is_lone=False)


def kinds_of(question: Question) -> list[Kind]:
    """The kinds that differ for this question, best first; the last is always the least strict."""
    if len(question.bounds_us) == 1:
        return [LEAST]
    has_choice = len(question.sources) > 1 or len(question.targets) > 1
    return [
        Kind(is_spread, is_lone)
        for is_lone in (True, False)
        for is_spread in ((True, False) if has_choice else (False,))
    ]


def whole_choices(mask: Mask, question: Question, kind: Kind) -> list[list[tuple[Route, ...]]]:
    """Which routers common to both ends stand for a path by themselves, in groups to be tried.

    Such a path costs nothing, so an answer without it can be exchanged for one with it, as long as
    the bounds admit it: most of them first, then fewer. Spread edges demand all of them.
    """
    latencies_us = mask.graph.router_latencies_us
    common = [router for router in question.sources if router in question.targets]
    routes = [Route(router, (), latencies_us[router], 0) for router in common]
    units = len(question.bounds_us)
    if mask.is_timed:
        sizes = range(min(len(routes), units) + 1)
        return [[some for size in sizes for some in combinations(routes, size)]]
    if kind.is_spread:
        return [[tuple(routes)]]
    routes = [route for route in routes if route.latency_us <= question.bounds_us[-1]]
    routes.sort(key=lambda route: route.latency_us)
    if units == 1:
        return [[tuple(routes[:1])]]
    fewer: list[tuple[Route, ...]] = [(route,) for route in routes] if len(routes) > 1 else []
    return [[tuple(routes)], fewer]


def places_of(question: Question, kind: Kind, whole: tuple[Route, ...]) -> list[Places]:
    """Where the other paths may start and end; nowhere if no other is needed."""
    count = len(question.bounds_us)
    units = count - len(whole)
    used = {route.start for route in whole}
    starts, ends = (
        tuple(
            (router, room)
            for router in routers
            if (room := _room(count, len(routers), kind) - (kind.is_spread and router in used))
        )
        for routers in (question.sources, question.targets)
    )
    edges = frozenset(question.sources + question.targets)
    # From a router round to itself there are only rings: a lone start is no end, and vice versa.
    if len(starts) == 1:
        ends = tuple(end for end in ends if end[0] != starts[0][0])
    if len(ends) == 1:
        starts = tuple(start for start in starts if start[0] != ends[0][0])
    if not units or not starts or not ends:
        return []
    if units > 1 or not {router for router, _ in starts} & {router for router, _ in ends}:
        return [Places(starts, ends, units, edges, kind.is_lone)]
    # Several units are searched for rings; for a single one, ask for each start by itself.
    return [
        Places((start,), others, units, edges, kind.is_lone)
        for start in starts
        if (others := tuple(end for end in ends if end[0] != start[0]))
    ]


def _room(count: int, routers: int, kind: Kind) -> int:
    return -(-count // routers) if kind.is_spread else count
