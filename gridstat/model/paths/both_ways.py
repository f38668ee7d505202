"""Paths that end at a common edge router, beside others that start there.

A flow does not distinguish its units, so it would join the two into circles that start and end at
that router. Therefore each direction is a flow of its own. First the plain flow that it is where
channels lead both ways: one unit to each of the other ends, of which one is then turned round.
Otherwise the two flows are searched apart, and what both use is forbidden to either in turn
(conflict-based search), until nothing is used by both.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations, pairwise
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.paths.flow import Network, flow, walks
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.problem import bounds_left_us, fits
from gridstat.model.paths.routes import Route
from gridstat.model.paths.solving import Effort, Outcome, fit, solve

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.kinds import BothWays
    from gridstat.model.paths.mask import Mask, Terminals

ONE_EACH: Final = 2
"""Units of one path to the common router and one from it."""

STEPS_PER_PAIR: Final = 64
"""Steps charged for one attempt at both flows, beside the labels of these: masks are built anew."""


class Side(NamedTuple):
    """One of the two flows: its terminals and bounds, and what the other one has."""

    terminals: Terminals
    bounds_us: tuple[int, ...]
    arcs: frozenset[int] = frozenset()
    routers: frozenset[int] = frozenset()


class Pair(NamedTuple):
    """Both sides, each with its routes."""

    sides: tuple[Side, Side]
    routes: tuple[tuple[Route, ...], tuple[Route, ...]]

    @property
    def every(self) -> tuple[Route, ...]:
        return self.routes[0] + self.routes[1]


def solve_both_ways(
    mask: Mask,
    ways: BothWays,
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    effort: Effort,
    budget: Budget,
) -> Outcome:
    """Return paths in both directions within the bounds, beside the `whole` paths."""
    least_us = [*(route.latency_us for route in whole), *[0] * ways.units]
    if not fits(least_us, bounds_us):
        return Outcome(None, is_certain=True)
    spare: tuple[Route, ...] | None = None
    if ways.is_node_disjoint and ways.units == ONE_EACH:
        turned = _turned_within(mask, ways, whole, bounds_us, budget)
        if turned.is_certain or effort is not Effort.BEST:
            return turned
        spare = turned.routes
    left_us = bounds_left_us([route.latency_us for route in whole], bounds_us)
    found = _Conflicts(mask, ways, effort, budget).search(tuple(left_us))
    if found.routes is None:
        return Outcome(spare, found.is_certain)
    return Outcome((*whole, *found.routes), found.is_certain)


def _turned_within(
    mask: Mask,
    ways: BothWays,
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    budget: Budget,
) -> Outcome:
    """Return the cheapest turned flow, or else the fastest, if it keeps the bounds."""
    cheapest = turned_flow(mask, ways, mask.prices, budget)
    if cheapest is None:
        return Outcome(None, is_certain=True)
    if cheapest.routes is not None and fit((*whole, *cheapest.routes), bounds_us):
        return Outcome((*whole, *cheapest.routes), cheapest.is_certain)
    fastest = turned_flow(mask, ways, mask.latencies_us, budget)
    if fastest is None or fastest.routes is None:
        return Outcome(None, is_certain=False)
    routes = (*whole, *fastest.routes)
    return Outcome(routes if fit(routes, bounds_us) else None, is_certain=False)


def turned_flow(
    mask: Mask, ways: BothWays, weights: Sequence[int], budget: Budget
) -> Outcome | None:
    """Return one path to the common router and one from it, by a flow over channels of either way.

    None: there are no two such paths, even if channels could be used against their direction. No
    routes: the flow needs a channel that leads the other way only.
    """
    graph = mask.graph
    routers, arcs = len(graph.routers), len(graph.arcs)
    into, onward = (
        [router for router, _ in ways.into.starts],
        [router for router, _ in ways.onward.ends],
    )
    first, second, sink, origin = (2 * routers + at for at in range(4))
    out = graph.both_ways_out * 2 + [((2 * arcs, sink),), ((2 * arcs + 1, sink),), ()]
    out.append(out[ways.router])
    pseudo, heads = 2 * arcs + 2, [*graph.heads, *graph.tails, sink, sink]
    for router in {*into, *onward}:
        ends: list[tuple[int, int]] = []
        for label in [first] * (router in into) + [second] * (router in onward):
            ends.append((pseudo, label))
            heads.append(label)
            pseudo += 1
        out[router] = tuple(ends)
    potentials = [0] * len(out)
    for router in mask.dead | (ways.into.edges - {*into, *onward}):
        potentials[router] = NEVER
    network = Network(
        routers=routers,
        out=out,
        heads=heads,
        origins=[(origin, 2)],
        sink=sink,
        ends=frozenset((*into, *onward)),
        node_disjoint=True,
        twins={},
    )
    carrying = flow(
        network, [*weights, *weights, *[0] * (pseudo - 2 * arcs)], potentials, budget=budget
    )
    if carrying is None:
        return None
    routes: list[Route] = []
    relaxed = 0
    for _, steps in walks(network, carrying):
        passed = [ways.router, *(heads[step] for step in steps[:-2])]
        relaxed += sum(mask.costs[step % arcs] for step in steps[:-2])
        route = _route(mask, passed[::-1] if steps[-1] == 2 * arcs else passed)
        if route is None:
            return Outcome(None, is_certain=False)
        routes.append(route)
    return Outcome(tuple(routes), sum(route.cost for route in routes) == relaxed)


def _route(mask: Mask, routers: Sequence[int]) -> Route | None:
    """Return the path over these routers by their cheapest channels, if there are such."""
    graph, arcs = mask.graph, list[int]()
    for tail, head in pairwise(routers):
        between = [
            arc for arc, to in graph.arcs_out[tail] if to == head and mask.prices[arc] < NEVER
        ]
        if not between:
            return None
        arcs.append(min(between, key=lambda arc: mask.prices[arc]))
    latency_us = graph.router_latencies_us[routers[0]]
    latency_us += sum(mask.latencies_us[arc] for arc in arcs)
    return Route(routers[0], tuple(arcs), latency_us, sum(mask.costs[arc] for arc in arcs))


class _Conflicts:
    """Search for a pair of flows that use nothing together."""

    __slots__ = ("_budget", "_count", "_edges", "_effort", "_heap", "_is_certain", "_mask", "_ways")

    def __init__(self, mask: Mask, ways: BothWays, effort: Effort, budget: Budget) -> None:
        self._mask = mask
        self._ways = ways
        self._effort = effort
        self._budget = budget
        self._edges = ways.into.edges
        self._heap: list[tuple[int, int, int, Pair]] = []
        self._count = 0
        self._is_certain = True

    def search(self, bounds_us: tuple[int, ...]) -> Outcome:
        """Return the paths of both directions; each bound goes to one of them."""
        into, onward = self._ways.into, self._ways.onward
        for chosen in sorted(set(combinations(bounds_us, into.units))):
            others = list(bounds_us)
            for bound_us in chosen:
                others.remove(bound_us)
            sides = (Side(into, chosen), Side(onward, tuple(others)))
            self._put(sides, (self._routes(sides[0]), self._routes(sides[1])))
        while self._heap:
            *_, pair = heappop(self._heap)
            children = list(self._divided(pair))
            if not children:
                return Outcome(pair.every, self._is_certain)
            if self._effort is Effort.FLOW_ONLY or self._budget.is_spent(STEPS_PER_PAIR):
                return Outcome(None, is_certain=False)
            for changed, sides in children:
                one, other = (
                    self._routes(sides[at]) if at in changed else pair.routes[at] for at in (0, 1)
                )
                self._put(sides, (one, other))
        return Outcome(None, self._is_certain)

    def _routes(self, side: Side) -> tuple[Route, ...] | None:
        mask = self._mask
        if side.arcs or side.routers:
            mask = mask.without(side.arcs, side.routers)
        if not side.terminals.has_room:
            return None
        found = solve(mask, side.terminals, (), side.bounds_us, self._effort, self._budget)
        self._is_certain &= found.is_certain
        return found.routes

    def _put(
        self,
        sides: tuple[Side, Side],
        routes: tuple[tuple[Route, ...] | None, tuple[Route, ...] | None],
    ) -> None:
        one, other = routes
        if not one or not other:
            return
        pair = Pair(sides, (one, other))
        cost = sum(route.cost for route in pair.every)
        shared = len(self._shared_arcs(pair)) + len(self._shared_routers(pair))
        keys = (cost, shared) if self._effort is Effort.BEST else (shared, cost)
        self._count += 1
        heappush(self._heap, (*keys, self._count, pair))

    def _divided(self, pair: Pair) -> Iterator[tuple[tuple[int, ...], tuple[Side, Side]]]:
        """Yield pairs that no longer use one thing together, and which of their sides changed."""
        one, other = pair.sides
        if arcs := self._shared_arcs(pair):
            taken = frozenset((min(arcs),))
            yield (0,), (one._replace(arcs=one.arcs | taken), other)
            yield (1,), (one, other._replace(arcs=other.arcs | taken))
        elif routers := self._shared_routers(pair):
            taken = frozenset((min(routers),))
            yield (0,), (one._replace(routers=one.routers | taken), other)
            yield (1,), (one, other._replace(routers=other.routers | taken))
        else:
            yield from self._with_less_room(pair)

    def _with_less_room(self, pair: Pair) -> Iterator[tuple[tuple[int, ...], tuple[Side, Side]]]:
        """Yield the ways to divide the room of a start that both sides use too often together."""
        one, other = pair.sides
        for router, room in self._ways.rooms:
            if sum(route.start == router for route in pair.every) > room:
                for share in range(room + 1):
                    yield (
                        (0, 1),
                        (_with_room(one, router, share), _with_room(other, router, room - share)),
                    )
                return

    def _shared_arcs(self, pair: Pair) -> set[int]:
        one, other = ({arc for route in routes for arc in route.arcs} for routes in pair.routes)
        return one & other

    def _shared_routers(self, pair: Pair) -> set[int]:
        single = self._ways.into.single
        if not self._ways.is_node_disjoint and not single:
            return set()
        heads = self._mask.graph.heads
        one, other = (
            {heads[arc] for route in routes for arc in route.arcs} for routes in pair.routes
        )
        shared = (one & other) - self._edges
        return shared if self._ways.is_node_disjoint else shared & single


def _with_room(side: Side, router: int, room: int) -> Side:
    starts = tuple(
        (start, min(room, before) if start == router else before)
        for start, before in side.terminals.starts
    )
    starts = tuple((start, left) for start, left in starts if left)
    return side._replace(terminals=side.terminals.with_starts(starts))
