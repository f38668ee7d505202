"""Exact branch and bound for disjoint paths with one bound each.

The relaxation replaces the bounds of the paths by their sum: a flow, weighted by cost, by latency
or by a mixture (Lagrange). Where the relaxed answer violates a bound, its space is divided. A flow
whose least latency exceeds the sum proves that a space is empty; a flow that costs no less than the
best known answer proves that the space can be skipped.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from heapq import heappop, heappush
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from gridstat.model.paths.bounded_walk import bounded_walk
from gridstat.model.paths.end_swaps import swap_ends
from gridstat.model.paths.flow import Limits, flow, walks
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.problem import bounds_left_us, fits
from gridstat.model.paths.spaces import Space, SpaceNetwork, Walk, subspaces

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.problem import Problem
    from gridstat.model.paths.routes import Route

STEPS_PER_SPACE: Final = 32
"""Steps charged for a space beside the labels of its flows: its network is built anew."""

PRICE_MAX: Final = 1 << 12
PRICE_ROUNDS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Relaxed:
    """A flow, and the walk that exceeds its bound most; None if every walk keeps its bound."""

    worst: Walk | None
    excess_us: int
    cost: int
    latency_us: int


class Branching:
    """Search in one problem; `best` is the cheapest answer so far."""

    __slots__ = (
        "_bounds_us",
        "_budget",
        "_cost_price",
        "_latency_price",
        "_latency_to",
        "_mixed",
        "_mixed_to",
        "_price_to",
        "_problem",
        "best",
        "best_cost",
    )

    def __init__(self, problem: Problem, bounds_us: Sequence[int], budget: Budget) -> None:
        problem.narrow(bounds_us[-1])
        budget.charge(2 * len(problem.graph.routers))
        self._problem = problem
        self._bounds_us = bounds_us
        self._budget = budget
        self._price_to = problem.price_potentials()
        self._latency_to = problem.latency_potentials()
        self._cost_price, self._latency_price = 1, 0
        self._mixed, self._mixed_to = problem.prices, self._price_to
        self.best: tuple[Route, ...] | None = None
        self.best_cost = NEVER

    def find_any(self, whole: tuple[Route, ...]) -> None:
        """Divide spaces, least excess first, until an answer is found or no space is left.

        Answers contain the `whole` paths and as many more as the problem requires.
        """
        heap: list[tuple[int, int, Space, Walk]] = []
        waiting, count = [self._root(whole)], 0
        while waiting:
            for space in waiting:
                relaxed = self._fastest(space)
                if self.best is not None or self._budget.is_spent(STEPS_PER_SPACE):
                    return
                if relaxed is not None and relaxed.worst is not None:
                    count += 1
                    heappush(heap, (relaxed.excess_us, -count, space, relaxed.worst))
            waiting = []
            if heap:
                _, _, space, worst = heappop(heap)
                waiting = list(subspaces(self._problem, space, worst))

    def improve(self, whole: tuple[Route, ...]) -> None:
        """Divide spaces, least cost first, until none can hold a cheaper answer than the best."""
        heap: list[tuple[int, int, Space, Walk]] = []
        waiting, count = [self._root(whole)], 0
        self._price(waiting[0])
        while waiting:
            for space in waiting:
                found = self._cheapest(space)
                if self._budget.is_spent(STEPS_PER_SPACE):
                    return
                if found is not None:
                    count += 1
                    heappush(heap, (found[0], -count, space, found[1]))
            waiting = []
            if heap and heap[0][0] < self.best_cost:
                _, _, space, worst = heappop(heap)
                waiting = list(subspaces(self._problem, space, worst))

    def _root(self, whole: tuple[Route, ...]) -> Space:
        return Space(whole, (), self._problem.terminals.units, frozenset())

    def _fastest(self, space: Space) -> Relaxed | None:
        """Return the relaxed answer of least latency; None if the space is empty or solved."""
        if self._is_infeasible(space) or self._is_solved(space):
            return None
        left = SpaceNetwork(self._problem, space)
        return self._relax_in_time(space, left)

    def _cheapest(self, space: Space) -> tuple[int, Walk] | None:
        """Return a lower bound of the cost and a walk to divide by; None to skip the space."""
        if self._is_infeasible(space) or self._is_solved(space):
            return None
        problem, left = self._problem, SpaceNetwork(self._problem, space)
        if self._relax_in_time(space, left) is None:
            return None
        cheapest = self._relax(space, left, problem.prices, self._price_to)
        if cheapest is None or cheapest.worst is None or cheapest.cost >= self.best_cost:
            return None
        bound, worst = cheapest.cost, cheapest.worst
        if self._latency_price:
            mixed = self._relax(space, left, self._mixed, self._mixed_to)
            if mixed is None:
                return None
            over_us = mixed.latency_us - sum(self._bounds_us)
            surplus = -(-self._latency_price * over_us // self._cost_price)
            bound = max(bound, mixed.cost + surplus)
            worst = mixed.worst or worst
        return (bound, worst) if bound < self.best_cost else None

    def _price(self, root: Space) -> None:
        """Find the mixture of cost and latency whose flow bounds the cost best (LARAC)."""
        problem, left = self._problem, SpaceNetwork(self._problem, root)
        allowed_us = sum(self._bounds_us)
        cheap = self._relax(root, left, problem.prices, self._price_to)
        fast = self._relax(root, left, problem.latencies_us, self._latency_to)
        for _ in range(PRICE_ROUNDS_MAX):
            if cheap is None or fast is None or cheap.latency_us <= allowed_us:
                return
            cost_price, latency_price = cheap.latency_us - fast.latency_us, fast.cost - cheap.cost
            if cost_price <= 0 or latency_price <= 0:
                return
            excess = max(cost_price, latency_price) // PRICE_MAX + 1
            cost_price, latency_price = cost_price // excess, latency_price // excess
            if not cost_price or not latency_price:
                return
            self._mix(cost_price, latency_price)
            mixed = self._relax(root, left, self._mixed, self._mixed_to)
            if mixed is None or (mixed.cost, mixed.latency_us) in {
                (cheap.cost, cheap.latency_us),
                (fast.cost, fast.latency_us),
            }:
                return
            if mixed.latency_us <= allowed_us:
                fast = mixed
            else:
                cheap = mixed

    def _mix(self, cost_price: int, latency_price: int) -> None:
        """Set the mixture; a price divided by the unit cost is the cost alone."""
        problem, unit_cost = self._problem, self._problem.graph.unit_cost
        self._cost_price, self._latency_price = cost_price, latency_price
        self._mixed, self._mixed_to = (
            [
                cost_price * (price // unit_cost) + latency_price * latency_us
                for price, latency_us in zip(prices, latencies_us, strict=True)
            ]
            for prices, latencies_us in (
                (problem.prices, problem.latencies_us),
                (self._price_to, self._latency_to),
            )
        )

    def _relax_in_time(self, space: Space, left: SpaceNetwork) -> Relaxed | None:
        """Return the fastest flow; None if its first one, two, … units exceed their bounds."""
        free_us = bounds_left_us([route.latency_us for route in space.whole], self._bounds_us)
        limits = Limits(left.entries_us(), list(accumulate(free_us)))
        latencies_us, potentials = self._problem.latencies_us, self._latency_to
        return self._relax(space, left, latencies_us, potentials, limits)

    def _relax(
        self,
        space: Space,
        left: SpaceNetwork,
        weights: list[int],
        potentials: list[int],
        limits: Limits | None = None,
    ) -> Relaxed | None:
        """Return the flow of least weight in the remaining network; keep it if it is an answer."""
        network = left.network
        carrying = flow(
            network, left.weights(weights), left.potentials(potentials), limits, budget=self._budget
        )
        if carrying is None:
            return None
        unit_walks = [left.walk(label, arcs) for label, arcs in walks(network, carrying)]
        if not network.node_disjoint:
            unit_walks = self._with_swapped_ends(space, unit_walks)
        return self._evaluated(space, unit_walks)

    def _with_swapped_ends(self, space: Space, unit_walks: list[Walk]) -> list[Walk]:
        heads, latencies_us = self._problem.graph.heads, self._problem.latencies_us
        timed = []
        for walk in unit_walks:
            passed_us, reached = self._prefix_us(space, walk), []
            for arc in walk.arcs:
                passed_us += latencies_us[arc]
                reached.append((heads[arc], passed_us))
            timed.append(reached)
        known_us = [route.latency_us for route in space.whole]
        swapped = swap_ends([walk.arcs for walk in unit_walks], timed, known_us, self._bounds_us)
        return [replace(walk, arcs=arcs) for walk, arcs in zip(unit_walks, swapped, strict=True)]

    def _evaluated(self, space: Space, unit_walks: list[Walk]) -> Relaxed:
        routes = [self._problem.route(space.arcs(walk)) for walk in unit_walks]
        complete = [*space.whole, *(route for route in routes if route is not None)]
        cost = sum(route.cost for route in complete)
        latency_us = sum(route.latency_us for route in complete)
        for walk, route in zip(unit_walks, routes, strict=True):
            if route is None:
                return Relaxed(walk, NEVER, cost, latency_us)
        order = sorted(range(len(complete)), key=lambda index: complete[index].latency_us)
        excess_us, worst = 0, None
        most_us = 0
        for bound_us, index in zip(self._bounds_us, order, strict=True):
            over_us = complete[index].latency_us - bound_us
            excess_us += max(over_us, 0)
            if over_us > most_us and index >= len(space.whole):
                most_us, worst = over_us, unit_walks[index - len(space.whole)]
        if excess_us == 0:
            self._consider(tuple(complete), cost)
        elif worst is None:
            worst = unit_walks[0]
        return Relaxed(worst, excess_us, cost, latency_us)

    def _consider(self, routes: tuple[Route, ...], cost: int) -> None:
        if cost < self.best_cost:
            self.best, self.best_cost = routes, cost

    def _is_infeasible(self, space: Space) -> bool:
        """Return whether some path is too slow even without the other paths."""
        problem = self._problem
        latency_of, latency_to = problem.latencies_us, problem.latencies_to
        least_us = [route.latency_us for route in space.whole]
        for prefix in space.prefixes:
            onward_us = [
                latency_of[arc] + latency_to[head]
                for arc, head in problem.arcs_out[prefix.end]
                if arc not in prefix.forbidden
            ]
            least_us.append(prefix.latency_us + min(onward_us, default=NEVER))
        if space.open_units:
            onward_us = [
                problem.graph.router_latencies_us[start] + latency_of[arc] + latency_to[head]
                for start, _ in problem.terminals.starts
                for arc, head in problem.arcs_out[start]
                if arc not in space.forbidden
            ]
            least_us += [min(onward_us, default=NEVER)] * space.open_units
        return not fits(least_us, self._bounds_us)

    def _is_solved(self, space: Space) -> bool:
        """Return whether at most one path was missing, and solve the space exactly if so."""
        if space.units == 0:
            if fits((route.latency_us for route in space.whole), self._bounds_us):
                self._consider(space.whole, sum(route.cost for route in space.whole))
            return True
        if space.units > 1:
            return False
        problem, left = self._problem, SpaceNetwork(self._problem, space)
        (allowed_us,) = bounds_left_us([route.latency_us for route in space.whole], self._bounds_us)
        arcs = bounded_walk(
            left.network,
            (left.weights(problem.prices), left.potentials(self._price_to)),
            (left.weights(problem.latencies_us), left.potentials(self._latency_to)),
            allowed_us - left.entries_us()[left.network.origins[0][0]],
            self._budget,
        )
        if arcs is None:
            return True
        walk = left.walk(left.network.origins[0][0], arcs)
        route = problem.route(space.arcs(walk))
        if route is None:
            return False
        complete = (*space.whole, route)
        self._consider(complete, sum(route.cost for route in complete))
        return True

    def _prefix_us(self, space: Space, walk: Walk) -> int:
        if walk.prefix is not None:
            return space.prefixes[walk.prefix].latency_us
        graph = self._problem.graph
        return graph.router_latencies_us[graph.tails[walk.arcs[0]]]
