"""Disjoint paths within latency bounds (S0 §2.1): the front of the search.

First a glance: the cheapest disjoint paths, whatever their latency, mostly keep the bounds as well.
Only if they do not, the exact search begins; it is cut off by the budget and then says so.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.errors import LayoutError
from gridstat.model.paths.branching import Branching
from gridstat.model.paths.budget import Budget
from gridstat.model.paths.flow import flow, walks
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.kinds import LEAST, Kind, Question, kinds_of, places_of, whole_choices
from gridstat.model.paths.mask import Mask
from gridstat.model.paths.path_answers import Found, FoundPath, NotFound
from gridstat.model.paths.problem import Problem, Route, fits
from gridstat.model.qos import REDUNDANCY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.graph import PathGraph

LEAST_PARTS: Final = 100
"""A refusal tells the least latency to ask for to a hundredth of it."""


class Effort(Enum):
    """How far a search goes: the cheapest flow only, any answer, or the cheapest answer."""

    GLANCE = auto()
    ANY = auto()
    BEST = auto()


class Outcome(NamedTuple):
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
    excluded_channels: AbstractSet[int] = frozenset(),
    excluded_routers: AbstractSet[str] = frozenset(),
    cheap_channels: Mapping[int, int] | None = None,
    budget_s: float = 0.1,
) -> Found | NotFound:
    """As many disjoint paths as there are bounds, the i-th fastest within the i-th bound.

    Sources and targets are the edge routers of publisher and subscriber; bounds ascend.
    `cheap_channels` says what a channel that carries the variable already costs in this search.
    """
    if not 1 <= len(bounds_us) <= REDUNDANCY_MAX or list(bounds_us) != sorted(bounds_us):
        raise LayoutError(
            f"a path search needs 1 to {REDUNDANCY_MAX} latency bounds, one a path, ascending"
        )
    mask = Mask(graph, excluded_channels, excluded_routers, cheap_channels)
    question = Question(_alive(mask, sources), _alive(mask, targets), tuple(bounds_us))
    if not question.sources or not question.targets:
        return NotFound("disconnected")
    return _answer(mask, question, Budget(clock, budget_s))


def _answer(mask: Mask, question: Question, budget: Budget) -> Found | NotFound:
    kinds = kinds_of(question)
    first = _search(mask, question, kinds[0], Effort.GLANCE, budget)
    if first.routes is not None and first.is_certain:
        return _found(mask, question, first.routes, is_optimal=True)
    first = _search(mask, question, kinds[0], Effort.BEST, budget.share(2))
    if first.routes is not None:
        return _found(mask, question, first.routes, is_optimal=first.is_certain)
    # What has no answer of the best kind often has none of the least strict: one proof will do.
    spare = _search(mask, question, LEAST, Effort.ANY, budget)
    if spare.routes is None and spare.is_certain:
        return _not_found(mask, question, budget)
    is_certain = first.is_certain
    for kind in kinds[1:] if first.is_certain else kinds:
        outcome = _search(mask, question, kind, Effort.BEST, budget)
        is_certain &= outcome.is_certain
        if outcome.routes is not None:
            return _found(mask, question, outcome.routes, is_optimal=is_certain)
    if spare.routes is not None:
        return _found(mask, question, spare.routes, is_optimal=False)
    return NotFound("budget")


def _search(mask: Mask, question: Question, kind: Kind, effort: Effort, budget: Budget) -> Outcome:
    """The best answer of one kind, over all choices of paths that need no channel."""
    best: tuple[Route, ...] | None = None
    is_certain = True
    worth = _latency_us if mask.is_timed else _cost
    for choices in whole_choices(mask, question, kind):
        for whole in choices:
            outcomes = [
                _solve(Problem(mask, places), whole, question.bounds_us, effort, budget)
                for places in places_of(question, kind, whole)
            ]
            if _fit(whole, question.bounds_us):
                outcomes.append(Outcome(whole, is_certain=True))
            for outcome in outcomes:
                is_certain &= outcome.is_certain
                if outcome.routes and (best is None or worth(outcome.routes) < worth(best)):
                    best = outcome.routes
        if best is not None:
            break
    return Outcome(best, is_certain)


def _solve(
    problem: Problem,
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    effort: Effort,
    budget: Budget,
) -> Outcome:
    """The cheapest flow if it keeps the bounds; else, unless at a glance, a search within them."""
    carrying = flow(problem.network, problem.prices, problem.price_potentials())
    if carrying is None:
        return Outcome(None, is_certain=True)
    routes = [problem.route(arcs) for _, arcs in walks(problem.network, carrying)]
    complete = (*whole, *(route for route in routes if route is not None))
    if _fit(complete, bounds_us):
        return Outcome(complete, is_certain=True)
    if effort is Effort.GLANCE or budget.was_spent:
        return Outcome(None, is_certain=False)
    branching = Branching(problem, bounds_us, budget)
    branching.find_any(whole)
    if effort is Effort.BEST and branching.best is not None and not budget.was_spent:
        branching.improve(whole)
    return Outcome(branching.best, not budget.was_spent)


def _not_found(mask: Mask, question: Question, budget: Budget) -> NotFound:
    """Why even the least strict kind has no answer, from the fastest paths without bounds."""
    wanted = len(question.bounds_us)
    for count in range(wanted, 0, -1):
        boundless = Question(question.sources, question.targets, (NEVER,) * count)
        routes = _search(mask.timed(), boundless, LEAST, Effort.ANY, budget).routes
        if routes is not None and count < wanted:
            return NotFound("disjoint", paths_max=count)
        if routes is not None:
            enough_us = _enough_us(routes, question.bounds_us)
            least_us = _least_us(mask, question, enough_us, budget.share(4))
            last = max(at for at in range(count) if question.bounds_us[at] < least_us)
            return NotFound("latency", count, least_us, path_index=last)
    return NotFound("disconnected")


def _least_us(mask: Mask, question: Question, enough_us: int, budget: Budget) -> int:
    """About the least value that, were all lower bounds raised to it, would admit some paths."""
    too_little_us = question.bounds_us[0]
    if len(question.bounds_us) == 1:
        return enough_us  # The fastest path alone is the fastest there is.
    while enough_us - too_little_us > 1 + enough_us // LEAST_PARTS:
        middle_us = (too_little_us + enough_us) // 2
        raised_us = tuple(max(bound_us, middle_us) for bound_us in question.bounds_us)
        raised = Question(question.sources, question.targets, raised_us)
        outcome = _search(mask, raised, LEAST, Effort.ANY, budget)
        if outcome.routes is not None:
            enough_us = _enough_us(outcome.routes, question.bounds_us)
        elif outcome.is_certain:
            too_little_us = middle_us
        else:
            break
    return enough_us


def _enough_us(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> int:
    """To what the bounds that these routes miss must be raised."""
    latencies_us = sorted(route.latency_us for route in routes)
    return max(
        latency_us
        for latency_us, bound_us in zip(latencies_us, bounds_us, strict=True)
        if latency_us > bound_us
    )


def _found(mask: Mask, question: Question, routes: tuple[Route, ...], *, is_optimal: bool) -> Found:
    graph = mask.graph
    passed = [[route.start, *(graph.heads[arc] for arc in route.arcs)] for route in routes]
    seen: set[int] = set()
    shared: set[int] = set()
    for routers in passed:
        shared |= seen.intersection(routers)
        seen.update(routers)
    paths = [
        FoundPath(
            tuple([graph.routers[router] for router in routers]),
            tuple([graph.arcs[arc].channel_id for arc in route.arcs]),
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


def _alive(mask: Mask, names: Sequence[str]) -> tuple[int, ...]:
    numbers = {mask.graph.number_of[name] for name in names if name in mask.graph.number_of}
    return tuple(sorted(numbers - mask.dead))


def _fit(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> bool:
    return len(routes) == len(bounds_us) and fits([route.latency_us for route in routes], bounds_us)


def _latency_us(routes: tuple[Route, ...]) -> int:
    return sum(route.latency_us for route in routes)


def _cost(routes: tuple[Route, ...]) -> int:
    return sum(route.cost for route in routes)
