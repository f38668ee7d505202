"""One question to the search, in arrays: from where, to where, how often, over what.

A problem is a path graph under a mask, with its places of start and end spread out as labels of a
network; the weights it holds are shared with the graph unless the mask touches them.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gridstat.model.errors import LayoutError
from gridstat.model.paths.flow import Network
from gridstat.model.paths.graph import NEVER, WEIGHT_MAX, distances, lowered

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from gridstat.model.paths.graph import Neighbours, PathGraph


@dataclass(frozen=True, slots=True)
class Route:
    """A path by numbers: its first router, then arcs; none if publisher and subscriber share it."""

    start: int
    arcs: tuple[int, ...]
    latency_us: int
    cost: int


@dataclass(frozen=True, slots=True)
class Places:
    """Routers where paths may start and end, each with how many may.

    `edges` are not to be passed through; `lone` says that no other router is passed twice.
    """

    starts: tuple[tuple[int, int], ...]
    ends: tuple[tuple[int, int], ...]
    units: int
    edges: frozenset[int]
    lone: bool


class Mask:
    """A graph less what is excluded, at the prices of one search."""

    __slots__ = ("_cheaper", "costs", "dead", "graph", "is_timed", "latencies_us", "prices")

    def __init__(
        self,
        graph: PathGraph,
        excluded_channels: AbstractSet[int],
        excluded_routers: AbstractSet[str],
        cheap_channels: Mapping[int, int] | None,
    ) -> None:
        self.graph = graph
        self.is_timed = False
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

    def timed(self) -> Mask:
        """The same graph, in which time is the only price."""
        found = copy(self)
        found.costs = found.prices = self.latencies_us
        found.is_timed = True
        return found

    def prices_to(self, ends: Sequence[int]) -> list[int]:
        """Lower bounds of the price from each router to the nearest end."""
        if self.is_timed:
            return nearest([self.graph.latencies_to(end) for end in ends])
        found = nearest([self.graph.prices_to(end) for end in ends])
        return lowered(self.graph, found, self.prices, self._cheaper) if self._cheaper else found


class Problem:
    """Places in a masked graph, as a network of labels with potentials for cost and latency.

    Pseudo arcs, numbered after the graph's, lead from several ends to a common sink and from a
    common origin to several starts, as many side by side as may be used.
    """

    __slots__ = (
        "arcs_out",
        "costs",
        "dead",
        "graph",
        "latencies_to",
        "latencies_us",
        "network",
        "places",
        "prices",
        "prices_to",
        "start_labels",
    )

    def __init__(self, mask: Mask, places: Places) -> None:
        self.graph = mask.graph
        self.places = places
        self.arcs_out = mask.graph.arcs_out
        self.costs = mask.costs
        self.prices = mask.prices
        self.latencies_us = mask.latencies_us
        ends = [router for router, _ in places.ends]
        self.prices_to = mask.prices_to(ends)
        self.latencies_to: list[int] = []
        # A path starts and ends at an edge router, and never passes through one (see search.py).
        self.dead = mask.dead | places.edges.difference(ends)
        self.start_labels: dict[int, int] = {}
        self.network = self._network(mask.graph.labels_out.copy())

    def narrow(self, bound_us: int) -> None:
        """Leave out every arc that is on no path within the bound, and sharpen the potentials.

        Only after this are there potentials for latency.
        """
        graph = self.graph
        count = len(graph.arcs)
        latencies_us, prices = self.latencies_us[:count], self.prices[:count]
        for router in self.dead:
            for arc, _ in graph.arcs_into[router]:
                latencies_us[arc] = NEVER
        ends = {router: 0 for router, _ in self.places.ends}
        starts = {router: graph.router_latencies_us[router] for router, _ in self.places.starts}
        from_starts = distances(graph.arcs_out, latencies_us, starts)
        self.latencies_to = distances(graph.arcs_into, latencies_us, ends)
        for arc, (tail, head) in enumerate(zip(graph.tails, graph.heads, strict=True)):
            if from_starts[tail] + latencies_us[arc] + self.latencies_to[head] > bound_us:
                latencies_us[arc] = prices[arc] = NEVER
        self.prices_to = distances(graph.arcs_into, prices, ends)
        self.prices, self.latencies_us = prices, latencies_us
        self.arcs_out = [
            tuple(pair for pair in pairs if prices[pair[0]] < NEVER) for pairs in graph.arcs_out
        ]
        self.network = self._network(self.arcs_out * 2)

    def _network(self, out: list[Neighbours]) -> Network:
        graph = self.graph
        sink, pseudo_us = self._join_ends(out)
        self.start_labels = {}
        group: list[tuple[int, int]] = []
        for router, room in self.places.starts:
            self.start_labels[len(out)] = router
            for _ in range(room if len(self.places.starts) > 1 else 0):
                group.append((len(graph.arcs) + len(pseudo_us), len(out)))
                pseudo_us.append(graph.router_latencies_us[router])
            out.append(self.arcs_out[router])
        if group:
            out.append(tuple(group))
        heads = graph.heads
        if pseudo_us:
            into_sink = [sink] * (len(pseudo_us) - len(group))
            heads = [*heads, *into_sink, *(label for _, label in group)]
            self.prices = [*self.prices, *pseudo_us]
            self.latencies_us = [*self.latencies_us, *pseudo_us]
        return Network(
            routers=len(graph.routers),
            out=out,
            heads=heads,
            origins=[(len(out) - 1, self.places.units)],
            sink=sink,
            ends=frozenset(router for router, _ in self.places.ends),
            lone=self.places.lone,
            twins={},
        )

    def _join_ends(self, out: list[Neighbours]) -> tuple[int, list[int]]:
        """The sink's label, and the latencies of the pseudo arcs into it."""
        if len(self.places.ends) == 1:
            return self.places.ends[0][0], []
        sink, arc = len(out), len(self.graph.arcs)
        out.append(())
        for router, room in self.places.ends:
            out[router] = tuple((arc + copy, sink) for copy in range(room))
            arc += room
        return sink, [0] * (arc - len(self.graph.arcs))

    def price_potentials(self) -> list[int]:
        return self._potentials(self.prices_to)

    def latency_potentials(self) -> list[int]:
        return self._potentials(self.latencies_to)

    def _potentials(self, to_ends: Sequence[int]) -> list[int]:
        """Bounds for every label from those for routers."""
        found = [*to_ends, *([0] * (len(self.network.out) - len(to_ends)))]
        for label, router in self.start_labels.items():
            found[label] = to_ends[router]
        group = len(self.network.out) - 1
        if group not in self.start_labels:
            entry_us = self.graph.router_latencies_us
            starts = self.start_labels.values()
            found[group] = min([entry_us[router] + to_ends[router] for router in starts])
        for router in self.dead:
            found[router] = NEVER
        return found

    def route(self, arcs: Iterable[int]) -> Route | None:
        """The walk's real arcs as a simple path; None if nothing of it remains."""
        graph, count = self.graph, len(self.graph.arcs)
        kept = [arc for arc in arcs if arc < count]
        start = graph.tails[kept[0]]
        if not self.places.lone or start in self.network.ends:
            kept = self._without_rings(kept)
        if not kept:
            return None
        latency_us, cost, latencies_us, costs = (
            graph.router_latencies_us[start],
            0,
            self.latencies_us,
            self.costs,
        )
        for arc in kept:
            latency_us += latencies_us[arc]
            cost += costs[arc]
        return Route(start, tuple(kept), latency_us, cost)

    def _without_rings(self, arcs: list[int]) -> list[int]:
        """Two paths that share a router may each lead round in a ring: it is left out."""
        heads = self.graph.heads
        kept: list[int] = []
        place = {self.graph.tails[arcs[0]]: 0}
        for arc in arcs:
            kept.append(arc)
            head = heads[arc]
            if head in place:
                del kept[place[head] :]
                place = {router: at for router, at in place.items() if at <= place[head]}
            else:
                place[head] = len(kept)
        return kept


def fits(latencies_us: Iterable[int], bounds_us: Sequence[int]) -> bool:
    """Whether the paths, put in order, each keep to their bound."""
    return all(
        latency_us <= bound_us
        for latency_us, bound_us in zip(sorted(latencies_us), bounds_us, strict=True)
    )


def excess_us(latencies_us: Iterable[int], bounds_us: Sequence[int]) -> int:
    """By how much in all the paths, put in order, exceed their bounds."""
    return sum(
        latency_us - bound_us
        for latency_us, bound_us in zip(sorted(latencies_us), bounds_us, strict=True)
        if latency_us > bound_us
    )


def nearest(lists: Sequence[list[int]]) -> list[int]:
    return lists[0] if len(lists) == 1 else list(map(min, *lists))
