"""Solution of one problem: by its cheapest flow, or exactly, as far as was requested."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from gridstat.model.paths.branching import Branching
from gridstat.model.paths.flow import flow, walks
from gridstat.model.paths.problem import fits

if TYPE_CHECKING:
    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.problem import Problem, Route


class Effort(Enum):
    """Extent of a search: the cheapest flow only, any answer, or the cheapest answer."""

    FLOW_ONLY = auto()
    ANY = auto()
    BEST = auto()


class Outcome(NamedTuple):
    """Routes, or None; `is_certain`: the search was complete within its budget."""

    routes: tuple[Route, ...] | None
    is_certain: bool


def solve(
    problem: Problem,
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    effort: Effort,
    budget: Budget,
) -> Outcome:
    """Return the cheapest flow if it keeps the bounds; else search exactly if requested."""
    carrying = flow(problem.network, problem.prices, problem.price_potentials(), budget=budget)
    if carrying is None:
        return Outcome(None, is_certain=True)
    routes = [problem.route(arcs) for _, arcs in walks(problem.network, carrying)]
    complete = (*whole, *(route for route in routes if route is not None))
    if fit(complete, bounds_us):
        return Outcome(complete, is_certain=True)
    if effort is Effort.FLOW_ONLY or budget.was_spent:
        return Outcome(None, is_certain=False)
    branching = Branching(problem, bounds_us, budget)
    branching.find_any(whole)
    if effort is Effort.BEST and branching.best is not None and not budget.was_spent:
        branching.improve(whole)
    return Outcome(branching.best, not budget.was_spent)


def fit(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> bool:
    """Return whether there is one route for each bound, and the i-th fastest keeps the i-th."""
    return len(routes) == len(bounds_us) and fits([route.latency_us for route in routes], bounds_us)
