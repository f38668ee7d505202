"""View of a path graph for one search: without excluded parts, and with that search's prices."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gridstat.model.errors import LayoutError
from gridstat.model.paths.graph import NEVER, WEIGHT_MAX, distances, lowered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.graph import Neighbours, PathGraph
    from gridstat.model.paths.routes import CheapestFlow


@dataclass(frozen=True, slots=True)
class Terminals:
    """Routers at which paths may start and end, each with its capacity.

    No path passes through `edges`; `node_disjoint` says that no other router is passed twice, and
    otherwise those in `single` are not.
    """

    starts: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...]
    units: int
    edges: frozenset[int]
    node_disjoint: bool
    single: frozenset[int] = frozenset()

    @property
    def has_room(self) -> bool:
        """Return whether all units may start and end; a single start or end is bounded by this."""
        return all(
            sum(room for _, room in rooms) >= self.units for rooms in (self.starts, self.ends)
        )

    def with_starts(self, starts: tuple[tuple[int, int], ...]) -> Terminals:
        return replace(self, starts=starts)


@dataclass(frozen=True, slots=True)
class Reach:
    """Arcs on paths within a bound, and exact distances over them to the nearest end."""

    arcs_out: list[Neighbours]
    latencies_to: list[int]
    prices_to: list[int]


class Mask:
    """A graph without excluded parts, with the prices of one search."""

    __slots__ = (
        "_cheaper",
        "_reaches",
        "costs",
        "dead",
        "flows",
        "graph",
        "is_timed",
        "latencies_us",
        "prices",
    )

    def __init__(
        self,
        graph: PathGraph,
        excluded_channels: AbstractSet[int],
        excluded_routers: AbstractSet[str],
        cheap_channels: Mapping[int, int] | None,
    ) -> None:
        self.graph = graph
        self.is_timed = False
        self._reaches: dict[tuple[frozenset[int], frozenset[int], int, bool], Reach] = {}
        self.flows: dict[tuple[Terminals, bool], CheapestFlow] = {}
        """Cheapest flow between terminals, and whether it is by time; no bound changes it."""
        self.dead = {graph.number_of[name] for name in excluded_routers if name in graph.number_of}
        self.costs = graph.costs
        self.latencies_us = graph.latencies_us
        blocked = [
            graph.arc_of[channel] for channel in excluded_channels if channel in graph.arc_of
        ]
        cheap = {
            graph.arc_of[channel]: cost
            for channel, cost in (cheap_channels or {}).items()
            if channel in graph.arc_of
        }
        self.prices = graph.prices
        if blocked or cheap:
            self.costs, self.prices = graph.costs.copy(), graph.prices.copy()
        if blocked:
            self.latencies_us = graph.latencies_us.copy()
        for arc, cost in cheap.items():
            if not 0 <= cost < WEIGHT_MAX:
                raise LayoutError(f"a cost of {cost} is not between 0 and {WEIGHT_MAX - 1}")
            self.costs[arc] = cost
            self.prices[arc] = graph.price(cost, graph.latencies_us[arc])
        for arc in blocked:
            self.prices[arc] = self.latencies_us[arc] = NEVER
        self._cheaper = [arc for arc in cheap if self.prices[arc] < graph.prices[arc]]

    def without(self, arcs: AbstractSet[int], routers: AbstractSet[int]) -> Mask:
        """Return the same graph without some more arcs and routers."""
        found = copy(self)
        found.forget_answers()
        found.dead = self.dead | routers
        if arcs:
            found.prices, found.latencies_us = self.prices.copy(), self.latencies_us.copy()
            for arc in arcs:
                found.prices[arc] = found.latencies_us[arc] = NEVER
            if self.is_timed:
                found.costs = found.prices = found.latencies_us
        return found

    def forget_answers(self) -> None:
        self._reaches, self.flows = {}, {}

    def timed(self) -> Mask:
        """Return the same graph with latency as the only price."""
        found = copy(self)
        found.costs = found.prices = self.latencies_us
        found.is_timed = True
        return found

    def prices_to(self, ends: Sequence[int]) -> list[int]:
        """Return lower bounds of the price from each router to the nearest end."""
        if self.is_timed:
            return nearest([self.graph.latencies_to(end) for end in ends])
        found = nearest([self.graph.prices_to(end) for end in ends])
        return lowered(self.graph, found, self.prices, self._cheaper) if self._cheaper else found

    def dead_in(self, terminals: Terminals) -> set[int]:
        """Return the routers that no path passes: excluded ones, and edges that are no ends."""
        return self.dead | terminals.edges.difference(router for router, _ in terminals.ends)

    def reach(self, terminals: Terminals, bound_us: int) -> Reach:
        """Return what is within reach between these terminals; cached, since all kinds share it."""
        starts = frozenset(router for router, _ in terminals.starts)
        ends = frozenset(router for router, _ in terminals.ends)
        key = (starts, ends, bound_us, self.is_timed)
        found = self._reaches.get(key)
        if found is None:
            found = self._reaches[key] = self._reach(terminals, bound_us)
        return found

    def _reach(self, terminals: Terminals, bound_us: int) -> Reach:
        graph = self.graph
        latencies_us = self.latencies_us.copy()
        for router in self.dead_in(terminals):
            for arc, _ in graph.arcs_into[router]:
                latencies_us[arc] = NEVER
        starts = {router: graph.router_latencies_us[router] for router, _ in terminals.starts}
        ends = {router: 0 for router, _ in terminals.ends}
        latencies_to = distances(graph.arcs_into, latencies_us, ends, bound_us)
        from_starts = distances(graph.arcs_out, latencies_us, starts, bound_us)
        arcs_out: list[Neighbours] = [()] * len(graph.routers)
        arcs_into: list[list[tuple[int, int]]] = [[] for _ in graph.routers]
        for tail, passed_us in enumerate(from_starts):
            if passed_us > bound_us:
                continue
            left_us = bound_us - passed_us
            arcs_out[tail] = tuple(
                [
                    (arc, head)
                    for arc, head in graph.arcs_out[tail]
                    if latencies_us[arc] + latencies_to[head] <= left_us
                ]
            )
            for arc, head in arcs_out[tail]:
                arcs_into[head].append((arc, tail))
        prices_to = distances(arcs_into, self.prices, ends)
        return Reach(arcs_out, latencies_to, prices_to)


def nearest(lists: Sequence[list[int]]) -> list[int]:
    return lists[0] if len(lists) == 1 else list(map(min, *lists))
