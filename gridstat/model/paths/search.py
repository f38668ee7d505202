"""Disjoint paths within latency bounds (S0 §2.1): entry point of the search.

The cheapest flow is tried first: it ignores the bounds, and mostly keeps them nevertheless. Only if
it does not, the exact search begins. A spent budget ends it, and the answer says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import LayoutError
from gridstat.model.paths.both_ways import solve_both_ways
from gridstat.model.paths.budget import Budget
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.kinds import (
    LEAST,
    Kind,
    SearchQuery,
    both_ways_of,
    kinds_of,
    terminals_of,
    whole_choices,
)
from gridstat.model.paths.mask import Mask
from gridstat.model.paths.path_answers import Found, FoundPath, NotFound
from gridstat.model.paths.risks import without_common_risks
from gridstat.model.paths.solving import Effort, Outcome, fit, solve
from gridstat.model.qos import REDUNDANCY_MAX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.graph import PathGraph
    from gridstat.model.paths.routes import Route

BUDGET_S: Final = 0.05
"""Time of one search, unless its caller gives another."""

BOTH_WAYS_PARTS: Final = 8
"""Share of the budget for paths both ways at a common router, of a kind that cannot refuse."""

BEST_PARTS: Final = 4
"""Share of the budget for the cheapest answer of the best kind, and later for any better one than
an answer that is there already."""

LEAST_BUDGET_PARTS: Final = 8
"""Share of the budget for the least sufficient latency in a refusal."""

LEAST_PARTS: Final = 100
"""Precision of the least sufficient latency in a refusal: one hundredth."""


def disjoint_paths(
    graph: PathGraph,
    sources: Sequence[str],
    targets: Sequence[str],
    bounds_us: Sequence[int],
    *,
    clock: Callable[[], float],
    excluded_channels: AbstractSet[int] = frozenset(),
    excluded_routers: AbstractSet[str] = frozenset(),
    single_routers: AbstractSet[str] = frozenset(),
    cheap_channels: Mapping[int, int] | None = None,
    budget_s: float = BUDGET_S,
    whole: Budget | None = None,
) -> Found | NotFound:
    """Return one disjoint path for each bound, the i-th fastest within the i-th bound.

    Sources and targets are the edge routers of publisher and subscriber; bounds ascend.
    At most one path crosses, starts or ends at each of the `single_routers`.
    `cheap_channels` has the costs of channels that carry the variable already. What the search
    spends is charged to the `whole` budget too.
    """
    if not 1 <= len(bounds_us) <= REDUNDANCY_MAX or list(bounds_us) != sorted(bounds_us):
        raise LayoutError(
            f"a path search needs 1 to {REDUNDANCY_MAX} latency bounds, one a path, ascending"
        )
    mask = Mask(graph, excluded_channels, excluded_routers, cheap_channels)
    single = frozenset(_alive(mask, single_routers))
    query = SearchQuery(_alive(mask, sources), _alive(mask, targets), tuple(bounds_us), single)
    if not query.sources or not query.targets:
        return NotFound("disconnected")
    return _answer(mask, query, Budget(clock, budget_s, whole=whole))


def _answer(mask: Mask, query: SearchQuery, budget: Budget) -> Found | NotFound:
    kinds = kinds_of(query)
    first = _search(mask, query, kinds[0], Effort.FLOW_ONLY, budget)
    if first.routes is not None and first.is_certain:
        return _found(mask, query, first.routes, is_optimal=True)
    first = _search(mask, query, kinds[0], Effort.BEST, budget.share(BEST_PARTS))
    if first.routes is not None:
        return _found(mask, query, first.routes, is_optimal=first.is_certain)
    # Without an answer of the best kind there is often none of the least strict: prove that first.
    spare = _search(mask, query, LEAST, Effort.ANY, budget)
    if spare.routes is None and spare.is_certain:
        return _not_found(mask, query, budget)
    is_certain = first.is_certain
    share = budget if spare.routes is None else budget.share(BEST_PARTS)
    for kind in kinds[1:] if first.is_certain else kinds:
        outcome = _search(mask, query, kind, Effort.BEST, share)
        is_certain &= outcome.is_certain
        if outcome.routes is not None:
            return _found(mask, query, outcome.routes, is_optimal=is_certain)
    if spare.routes is not None:
        return _found(mask, query, spare.routes, is_optimal=False)
    return NotFound("budget")


def _search(mask: Mask, query: SearchQuery, kind: Kind, effort: Effort, budget: Budget) -> Outcome:
    """Return the best answer of one kind over all choices of paths without channels."""
    best: tuple[Route, ...] | None = None
    is_certain = True
    worth = _latency_us if mask.is_timed else _cost
    for choices in whole_choices(mask, query, kind):
        for whole in choices:
            for outcome in _outcomes(mask, query, kind, whole, effort, budget):
                is_certain &= outcome.is_certain
                if outcome.routes and (best is None or worth(outcome.routes) < worth(best)):
                    best = outcome.routes
        if best is not None:
            break
    return Outcome(best, is_certain)


def _outcomes(
    mask: Mask,
    query: SearchQuery,
    kind: Kind,
    whole: tuple[Route, ...],
    effort: Effort,
    budget: Budget,
) -> Iterator[Outcome]:
    """Yield what comes of each choice of terminals; if any answer will do, no more than needed."""
    is_found = fit(whole, query.bounds_us)
    if is_found:
        yield Outcome(whole, is_certain=True)
    for terminals in terminals_of(query, kind, whole):
        outcome = solve(mask, terminals, whole, query.bounds_us, effort, budget)
        outcome = without_common_risks(
            mask, outcome, (terminals,), whole, query.bounds_us, effort, budget
        )
        is_found |= outcome.routes is not None
        yield outcome
    for ways in both_ways_of(query, kind, whole):
        if is_found and effort is Effort.ANY:
            return
        # Only the least strict kind can refuse; of the others more is not worth all the time.
        share = budget if kind == LEAST else budget.share(BOTH_WAYS_PARTS)
        outcome = solve_both_ways(mask, ways, whole, query.bounds_us, effort, share)
        sides = (ways.into, ways.onward)
        outcome = without_common_risks(mask, outcome, sides, whole, query.bounds_us, effort, share)
        is_found |= outcome.routes is not None
        yield outcome


def _not_found(mask: Mask, query: SearchQuery, budget: Budget) -> NotFound:
    """Return why the least strict kind has no answer, from the fastest paths without bounds."""
    wanted = len(query.bounds_us)
    for count in range(wanted, 0, -1):
        boundless = query.with_bounds((NEVER,) * count)
        routes, is_certain = _search(mask.timed(), boundless, LEAST, Effort.ANY, budget)
        if routes is None and not is_certain:
            return NotFound("budget")  # There may be so many paths, or not.
        if routes is not None and count < wanted:
            return NotFound("disjoint", paths_max=count)
        if routes is not None:
            sufficient_us = _sufficient_us(routes, query.bounds_us)
            least_us = _least_us(mask, query, sufficient_us, budget.share(LEAST_BUDGET_PARTS))
            last = max(at for at in range(count) if query.bounds_us[at] < least_us)
            return NotFound("latency", count, least_us, path_index=last)
    return NotFound("disconnected")


def _least_us(mask: Mask, query: SearchQuery, sufficient_us: int, budget: Budget) -> int:
    """Return about the least value to which lower bounds must be raised to admit paths."""
    insufficient_us = query.bounds_us[0]
    if len(query.bounds_us) == 1:
        return sufficient_us  # The fastest path is known exactly.
    while sufficient_us - insufficient_us > 1 + sufficient_us // LEAST_PARTS:
        middle_us = (insufficient_us + sufficient_us) // 2
        raised_us = tuple(max(bound_us, middle_us) for bound_us in query.bounds_us)
        raised = query.with_bounds(raised_us)
        outcome = _search(mask, raised, LEAST, Effort.ANY, budget)
        if outcome.routes is not None:
            sufficient_us = _sufficient_us(outcome.routes, query.bounds_us)
        elif outcome.is_certain:
            insufficient_us = middle_us
        else:
            break
    return sufficient_us


def _sufficient_us(routes: tuple[Route, ...], bounds_us: tuple[int, ...]) -> int:
    """Return the value to which the bounds that these routes miss must be raised."""
    latencies_us = sorted(route.latency_us for route in routes)
    return max(
        latency_us
        for latency_us, bound_us in zip(latencies_us, bounds_us, strict=True)
        if latency_us > bound_us
    )


def _found(mask: Mask, query: SearchQuery, routes: tuple[Route, ...], *, is_optimal: bool) -> Found:
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
    edges = {*query.sources, *query.targets}
    return Found(
        paths=tuple(sorted(paths, key=lambda path: (path.latency_us, path.cost, path.channel_ids))),
        is_node_disjoint=shared <= edges,
        shares_edge=bool(shared & edges),
        is_optimal=is_optimal,
    )


def _alive(mask: Mask, names: Iterable[str]) -> tuple[int, ...]:
    numbers = {mask.graph.number_of[name] for name in names if name in mask.graph.number_of}
    return tuple(sorted(numbers - mask.dead))


def _latency_us(routes: tuple[Route, ...]) -> int:
    return sum(route.latency_us for route in routes)


def _cost(routes: tuple[Route, ...]) -> int:
    return sum(route.cost for route in routes)
