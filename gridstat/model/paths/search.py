"""Disjoint paths within latency bounds (S0 §2.1): the best kind of disjointness that there is.

Kinds, best first: no router shared and edges spread evenly; no inner router shared; no channel
shared and edges spread; no channel shared. A path starts and ends at an edge router of its ends
and passes through none of them: whoever could pass through one could as well start or end there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, TypedDict, Unpack

from gridstat.model.errors import LayoutError
from gridstat.model.paths.answers import Found, FoundPath, NotFound
from gridstat.model.paths.branching import Branching
from gridstat.model.paths.budget import Budget
from gridstat.model.paths.flow import flow, walks
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.problem import Mask, Places, Problem, Route, fits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.graph import PathGraph


class Options(TypedDict, total=False):
    """What a search leaves out, what it gets cheaper, and how long it may take."""

    excluded_channels: AbstractSet[int]
    excluded_routers: AbstractSet[str]
    cheap_channels: Mapping[int, int] | None
    budget_s: float


@dataclass(frozen=True, slots=True)
class _Question:
    """The edges of both ends by number, and the bounds in ascending order."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    bounds_us: tuple[int, ...]

    @property
    def common(self) -> tuple[int, ...]:
        return tuple(router for router in self.sources if router in self.targets)


@dataclass(frozen=True, slots=True)
class _Kind:
    """How disjoint: edges spread evenly or used at will, inner routers shared or not."""

    is_spread: bool
    is_lone: bool


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Routes, or none; `is_certain`: nothing was left out for lack of time."""

    routes: tuple[Route, ...] | None
    is_certain: bool


def disjoint_paths(
    graph: PathGraph,
    sources: Sequence[str],
    targets: Sequence[str],
    bounds_us: Sequence[int],
    *,
    clock: Callable[[], float],
    **options: Unpack[Options],
) -> Found | NotFound:
    """As many disjoint paths as there are bounds, the i-th fastest within the i-th bound.

    Sources and targets are the edge routers of publisher and subscriber; bounds ascend. Options:
    `excluded_channels`, `excluded_routers`, `cheap_channels` (channel → its cost in this search,
    for those that carry the variable already) and `budget_s`, 0.1 unless told.
    """
    if not bounds_us or list(bounds_us) != sorted(bounds_us):
        raise LayoutError("a path search needs one latency bound a path, in ascending order")
    mask = Mask(
        graph,
        options.get("excluded_channels", frozenset()),
        options.get("excluded_routers", frozenset()),
        options.get("cheap_channels"),
    )
    question = _Question(_alive(mask, sources), _alive(mask, targets), tuple(bounds_us))
    budget = Budget(clock, options.get("budget_s", 0.1))
    if not question.sources or not question.targets:
        return NotFound("disconnected")
    is_certain = True
    for kind in _kinds(question):
        outcome = _search(mask, question, kind, budget)
        is_certain &= outcome.is_certain
        if outcome.routes is not None:
            return _found(mask, question, outcome.routes, is_optimal=is_certain)
    if not outcome.is_certain:
        return NotFound("budget")
    return _not_found(mask, question, budget)


def _alive(mask: Mask, names: Sequence[str]) -> tuple[int, ...]:
    numbers = {mask.graph.number_of[name] for name in names if name in mask.graph.number_of}
    return tuple(sorted(numbers - mask.dead))


def _kinds(question: _Question) -> list[_Kind]:
    if len(question.bounds_us) == 1:
        return [_Kind(is_spread=False, is_lone=False)]
    has_choice = len(question.sources) > 1 or len(question.targets) > 1
    return [
        _Kind(is_spread, is_lone)
        for is_lone in (True, False)
        for is_spread in ((True, False) if has_choice else (False,))
    ]


def _search(mask: Mask, question: _Question, kind: _Kind, budget: Budget) -> _Outcome:
    """The cheapest answer of one kind, over all choices of paths that need no channel."""
    best: tuple[Route, ...] | None = None
    is_certain = True
    for choices in _channelless(mask, question, kind):
        for whole in choices:
            outcomes = [
                _solve(Problem(mask, places), whole, question.bounds_us, budget)
                for places in _places(question, kind, whole)
            ]
            if _fit(whole, question.bounds_us):
                outcomes.append(_Outcome(whole, is_certain=True))
            for outcome in outcomes:
                is_certain &= outcome.is_certain
                if outcome.routes is not None and (
                    best is None or _cost(outcome.routes) < _cost(best)
                ):
                    best = outcome.routes
        if best is not None:
            break
    return _Outcome(best, is_certain)


def _channelless(mask: Mask, question: _Question, kind: _Kind) -> list[list[tuple[Route, ...]]]:
    """Which routers that publisher and subscriber share stand for a path by themselves.

    Such a path is the cheapest there is, so an answer without it can be exchanged for one with it,
    as long as the bounds admit it: most of them first, then choices of fewer.
    """
    latencies_us = mask.graph.router_latencies_us
    routes = [Route(router, (), latencies_us[router], 0) for router in question.common]
    units = len(question.bounds_us)
    if mask.is_timed:
        routes = [replace(route, cost=route.latency_us) for route in routes]
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


def _places(question: _Question, kind: _Kind, whole: tuple[Route, ...]) -> list[Places]:
    """Where the other paths may start and end; nowhere if no other is needed."""
    count = len(question.bounds_us)
    units = count - len(whole)
    used = {route.start for route in whole}
    rooms = [
        tuple(
            (router, room)
            for router in routers
            if (room := _room(count, len(routers), kind) - (kind.is_spread and router in used))
        )
        for routers in (question.sources, question.targets)
    ]
    edges = frozenset(question.sources + question.targets)
    starts, ends = rooms
    if not units or not starts or not ends:
        return []
    if units > 1 or not {router for router, _ in starts} & {router for router, _ in ends}:
        return [Places(starts, ends, units, edges, kind.is_lone)]
    # One path must not lead from a router round to itself: ask for each start by itself.
    return [
        Places((start,), others, units, edges, kind.is_lone)
        for start in starts
        if (others := tuple(end for end in ends if end[0] != start[0]))
    ]


def _room(count: int, routers: int, kind: _Kind) -> int:
    return -(-count // routers) if kind.is_spread else count


def _solve(
    problem: Problem, whole: tuple[Route, ...], bounds_us: tuple[int, ...], budget: Budget
) -> _Outcome:
    """The cheapest flow if it keeps the bounds; else a search for the cheapest that does."""
    carrying = flow(problem.network, problem.costs, problem.cost_potentials())
    if carrying is None:
        return _Outcome(None, is_certain=True)
    reading = next(walks(problem.network, carrying))
    routes = [problem.route(arcs) for _, arcs in reading]
    complete = (*whole, *(route for route in routes if route is not None))
    if _fit(complete, bounds_us):
        return _Outcome(complete, is_certain=True)
    branching = Branching(problem, bounds_us, budget)
    branching.search(whole)
    return _Outcome(branching.best, not budget.was_spent)


def _fit(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> bool:
    return len(routes) == len(bounds_us) and fits([route.latency_us for route in routes], bounds_us)


def _cost(routes: tuple[Route, ...]) -> int:
    return sum(route.cost for route in routes)


def _found(
    mask: Mask, question: _Question, routes: tuple[Route, ...], *, is_optimal: bool
) -> Found:
    graph = mask.graph
    passed = [[route.start, *(graph.heads[arc] for arc in route.arcs)] for route in routes]
    seen: set[int] = set()
    shared: set[int] = set()
    for routers in passed:
        shared |= seen.intersection(routers)
        seen.update(routers)
    paths = [
        FoundPath(
            tuple(graph.routers[router] for router in routers),
            tuple(graph.arcs[arc].channel_id for arc in route.arcs),
            route.latency_us,
            route.cost,
        )
        for routers, route in zip(passed, routes, strict=True)
    ]
    edges = {*question.sources, *question.targets}
    return Found(
        paths=tuple(sorted(paths, key=lambda path: (path.latency_us, path.cost, path.channel_ids))),
        is_node_disjoint=shared <= edges,
        shares_edge=bool(shared & edges),
        is_optimal=is_optimal,
    )


def _not_found(mask: Mask, question: _Question, budget: Budget) -> NotFound:
    """Why the least strict kind has no answer."""
    kind = _Kind(is_spread=False, is_lone=False)
    timed = mask.timed()
    for count in range(len(question.bounds_us), 0, -1):
        boundless = _Question(question.sources, question.targets, (NEVER,) * count)
        routes = _search(timed, boundless, kind, budget).routes
        if routes is not None and count < len(question.bounds_us):
            return NotFound("disjoint", paths_max=count)
        if routes is not None:
            latencies_us = sorted(route.latency_us for route in routes)
            over = next(
                index for index in range(count) if latencies_us[index] > question.bounds_us[index]
            )
            return NotFound("latency", count, latencies_us[over], over)
    return NotFound("disconnected")
