"""Kinds of disjointness, best first, and the terminals of paths of each kind.

Kinds: no router shared and edges spread evenly; no inner router shared; no channel shared and edges
spread; no channel shared. A path starts and ends at an edge router of publisher and subscriber and
passes through none of them: a path through one could start or end there instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from gridstat.model.paths.mask import Terminals
from gridstat.model.paths.routes import Route

if TYPE_CHECKING:
    from collections.abc import Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.mask import Mask


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """Edge routers of both ends by number, and the latency bounds in ascending order."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bounds_us: tuple[int, ...]
    single: frozenset[int] = frozenset()
    """Routers that one path at most may cross, start or end at."""

    def with_bounds(self, bounds_us: tuple[int, ...]) -> SearchQuery:
        return replace(self, bounds_us=bounds_us)


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
    fewer = [some for size in range(len(routes) - 1, 0, -1) for some in combinations(routes, size)]
    return [[tuple(routes)], fewer]


class _Asked(NamedTuple):
    """What terminals follow from: edges, number of paths, kind, and the used common routers."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    wanted: int
    single: frozenset[int]
    kind: Kind
    used: tuple[int, ...]

    @classmethod
    def of(cls, query: SearchQuery, kind: Kind, whole: tuple[Route, ...]) -> _Asked:
        used = tuple([route.start for route in whole])
        wanted = len(query.bounds_us)
        return cls(query.sources, query.targets, wanted, query.single, kind, used)


def terminals_of(query: SearchQuery, kind: Kind, whole: tuple[Route, ...]) -> tuple[Terminals, ...]:
    """Return the terminals of the other paths; an empty list if no other path is needed.

    A router common to both ends is for starts or for ends: as both it would admit circles. It is
    left out if it is no path by itself: one that starts or ends there could be replaced by it.
    """
    return _terminals_of(_Asked.of(query, kind, whole))


@lru_cache(maxsize=1_024)
def _terminals_of(asked: _Asked) -> tuple[Terminals, ...]:
    left = _Left.of(asked)
    if left.units == 1 and left.common:
        # A single path is searched for each start.
        roles = [left.terminals((start,), left.others(left.ends, start)) for start in left.starts]
    else:
        roles = [left.with_roles(starting) for starting in _subsets(left.common)]
    return tuple(each for each in roles if left.units > 0 and each.has_room)


@dataclass(frozen=True, slots=True)
class BothWays:
    """Paths that end at a common router, and others that do not end but may start there.

    `rooms` has how many paths of both together may start at a router.
    """

    router: int
    into: Terminals
    onward: Terminals
    rooms: tuple[tuple[int, int], ...]

    @property
    def units(self) -> int:
        return self.into.units + self.onward.units

    @property
    def is_node_disjoint(self) -> bool:
        return self.into.node_disjoint


def both_ways_of(query: SearchQuery, kind: Kind, whole: tuple[Route, ...]) -> list[BothWays]:
    """Return the ways in which paths may both start and end at one common router."""
    if not whole:
        return []
    left = _Left.of(_Asked.of(query, kind, whole))
    found: list[BothWays] = []
    for router in left.common:
        others = [name for name in left.common if name != router]
        if others == [left.common[0]] and set(left.starts) == set(left.ends):
            continue  # The second of two routers: seen from either it is the same.
        room = dict(left.ends).get(router, 0)
        for starting in _subsets(others):
            onward = left.with_roles({router, *starting})
            starts = left.others(left.starts, router)
            for units in range(1, min(left.units, room + 1)):
                into = replace(onward, starts=starts, ends=((router, units),), units=units)
                rest = replace(onward, units=left.units - units)
                if into.has_room and rest.has_room:
                    found.append(BothWays(router, into, rest, left.starts))
    return found


@dataclass(frozen=True, slots=True)
class _Left:
    """What is left beside the paths that are a single router; `common` are those routers."""

    starts: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...]
    common: tuple[int, ...]
    units: int
    edges: frozenset[int]
    is_node_disjoint: bool
    single: frozenset[int]

    @classmethod
    def of(cls, asked: _Asked) -> _Left:
        unused = set(asked.sources).intersection(asked.targets).difference(asked.used)
        starts, ends = (
            tuple(
                (router, room)
                for router in routers
                if router not in unused and (room := _room(asked, len(routers), router))
            )
            for routers in (asked.sources, asked.targets)
        )
        edges = frozenset(asked.sources + asked.targets)
        return cls(
            starts,
            ends,
            asked.used,
            asked.wanted - len(asked.used),
            edges,
            asked.kind.is_node_disjoint,
            asked.single,
        )

    def with_roles(self, starting: AbstractSet[int]) -> Terminals:
        """Return terminals in which these common routers are starts, and the others ends."""
        return self.terminals(
            tuple(start for start in self.starts if start[0] in starting or self._is_lone(start)),
            tuple(end for end in self.ends if end[0] not in starting),
        )

    def terminals(
        self, starts: tuple[tuple[int, int], ...], ends: tuple[tuple[int, int], ...]
    ) -> Terminals:
        return Terminals(starts, ends, self.units, self.edges, self.is_node_disjoint, self.single)

    def others(
        self, terminals: tuple[tuple[int, int], ...], router: tuple[int, int] | int
    ) -> tuple[tuple[int, int], ...]:
        """Return the terminals without those at a router."""
        left_out = router if isinstance(router, int) else router[0]
        return tuple(each for each in terminals if each[0] != left_out)

    def _is_lone(self, terminal: tuple[int, int]) -> bool:
        return terminal[0] not in self.common


def _subsets(routers: Sequence[int]) -> list[set[int]]:
    return [set(some) for size in range(len(routers) + 1) for some in combinations(routers, size)]


def _room(asked: _Asked, routers: int, router: int) -> int:
    """Return how many paths may start, or end, at one of so many routers beside the used ones."""
    if router in asked.single:
        return 0 if router in asked.used else 1
    if not asked.kind.is_spread:
        return asked.wanted
    return -(-asked.wanted // routers) - (router in asked.used)
