"""Solution of one problem: by its cheapest flow, or exactly, as far as was requested."""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, NamedTuple

from gridstat.model.paths.branching import Branching
from gridstat.model.paths.flow import flow, walks
from gridstat.model.paths.problem import Problem, fits
from gridstat.model.paths.routes import CheapestFlow

if TYPE_CHECKING:
    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.mask import Mask, Terminals
    from gridstat.model.paths.routes import Route


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
    mask: Mask,
    terminals: Terminals,
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    effort: Effort,
    budget: Budget,
) -> Outcome:
    """Return the cheapest flow if it keeps the bounds; else search exactly if requested."""
    routes = _cheapest(mask, terminals, budget)
    if routes is None:
        return Outcome(None, is_certain=True)
    complete = (*whole, *routes)
    if fit(complete, bounds_us):
        return Outcome(complete, is_certain=True)
    if effort is Effort.FLOW_ONLY or budget.was_spent:
        return Outcome(None, is_certain=False)
    branching = Branching(Problem(mask, terminals), bounds_us, budget)
    branching.find_any(whole)
    if effort is Effort.BEST and branching.best is not None and not budget.was_spent:
        branching.improve(whole)
    return Outcome(branching.best, not budget.was_spent)


def _cheapest(mask: Mask, terminals: Terminals, budget: Budget) -> tuple[Route, ...] | None:
    """Return the routes of the cheapest flow, which is found once for all bounds.

    It is charged each time, so that an answer does not depend on what was searched before.
    """
    key = terminals, mask.is_timed
    known = mask.flows.get(key)
    if known is not None:
        budget.charge(known.steps)
        return known.routes
    before = budget.steps
    routes = _routes_of(Problem(mask, terminals), budget)
    mask.flows[key] = CheapestFlow(routes, budget.steps - before)
    return routes


def _routes_of(problem: Problem, budget: Budget) -> tuple[Route, ...] | None:
    carrying = flow(problem.network, problem.prices, problem.price_potentials(), budget=budget)
    if carrying is None:
        return None
    routes = [problem.route(arcs) for _, arcs in walks(problem.network, carrying)]
    return tuple([route for route in routes if route is not None])


def fit(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> bool:
    """Return whether there is one route for each bound, and the i-th fastest keeps the i-th."""
    return len(routes) == len(bounds_us) and fits([route.latency_us for route in routes], bounds_us)
