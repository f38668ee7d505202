"""Graph of a path search: numbered routers and arcs, with cost and latency each.

The graph is built once from channels and the routers' own latencies, then searched many times under
different masks. Distances towards a router are cached: under any mask they are lower bounds.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

NEVER: Final = 1 << 160
"""Weight of an excluded arc, and distance of an unreachable router."""

WEIGHT_MAX: Final = 1 << 36
"""Bound of any cost or latency of an arc, so that no sum of weights comes near NEVER."""

Neighbours = tuple[tuple[int, int], ...]
"""Pairs of an arc and the router (or label) at its other end."""


@dataclass(frozen=True, slots=True)
class Arc:
    """One event channel between two routers, with the price and the time of its use."""

    channel_id: int
    from_router: str
    to_router: str
    cost: int
    latency_us: int
    risks: tuple[str, ...] = ()
    """What can fail together has a risk in common; disjoint paths have none."""


class PathGraph:
    """Routers and arcs by number, in the order of their names; the arrays are never changed.

    The latency of an arc holds that of the router it leads to, so a path's latency is that of its
    first router and the sum over its arcs. An arc's price is its cost first, then its latency: of
    equally cheap paths the faster has the lower price. `both_ways_out` has every arc a second time,
    against its direction, numbered after all arcs. `risks` has those that several arcs run.
    """

    __slots__ = (
        "_latencies_to",
        "_prices_to",
        "arc_of",
        "arcs",
        "arcs_into",
        "arcs_out",
        "both_ways_out",
        "costs",
        "heads",
        "labels_out",
        "latencies_us",
        "number_of",
        "prices",
        "risks",
        "router_latencies_us",
        "routers",
        "tails",
        "unit_cost",
    )

    def __init__(self, arcs: Iterable[Arc], router_latency_us: Mapping[str, int]) -> None:
        self.arcs = sorted(arcs, key=lambda arc: (arc.from_router, arc.to_router, arc.channel_id))
        named = {name for arc in self.arcs for name in (arc.from_router, arc.to_router)}
        self.routers = sorted(named | set(router_latency_us))
        self.number_of = {name: number for number, name in enumerate(self.routers)}
        self.router_latencies_us = [router_latency_us.get(name, 0) for name in self.routers]
        self.arc_of = {arc.channel_id: index for index, arc in enumerate(self.arcs)}
        self._check()
        self.tails = [self.number_of[arc.from_router] for arc in self.arcs]
        self.heads = [self.number_of[arc.to_router] for arc in self.arcs]
        self.costs = [arc.cost for arc in self.arcs]
        self.latencies_us = [
            arc.latency_us + self.router_latencies_us[head]
            for arc, head in zip(self.arcs, self.heads, strict=True)
        ]
        self.unit_cost = sum(self.latencies_us) + sum(self.router_latencies_us) + 1
        self.prices = [
            self.price(cost, latency_us)
            for cost, latency_us in zip(self.costs, self.latencies_us, strict=True)
        ]
        self.arcs_out = _neighbours(len(self.routers), self.tails, self.heads)
        self.arcs_into = _neighbours(len(self.routers), self.heads, self.tails)
        self.labels_out = self.arcs_out * 2
        self.both_ways_out = [
            onward + tuple([(len(self.arcs) + arc, tail) for arc, tail in into])
            for onward, into in zip(self.arcs_out, self.arcs_into, strict=True)
        ]
        self.risks = SharedRisks(self.arcs)
        self._prices_to: dict[int, list[int]] = {}
        self._latencies_to: dict[int, list[int]] = {}

    def price(self, cost: int, latency_us: int) -> int:
        return cost * self.unit_cost + latency_us

    def prices_to(self, router: int) -> list[int]:
        """Return the least price from each router to this one, without exclusions."""
        found = self._prices_to.get(router)
        if found is None:
            found = self._prices_to[router] = distances(self.arcs_into, self.prices, {router: 0})
        return found

    def latencies_to(self, router: int) -> list[int]:
        """Return the least latency from each router, without its own, to this one."""
        found = self._latencies_to.get(router)
        if found is None:
            into, latencies_us = self.arcs_into, self.latencies_us
            found = self._latencies_to[router] = distances(into, latencies_us, {router: 0})
        return found

    def _check(self) -> None:
        if len(self.arc_of) != len(self.arcs):
            raise LayoutError("two arcs of a path graph carry the same channel number")
        for arc in self.arcs:
            if arc.from_router == arc.to_router:
                raise LayoutError(f"channel {arc.channel_id} leads from {arc.to_router} to itself")
            if not (0 <= arc.cost < WEIGHT_MAX and 0 <= arc.latency_us < WEIGHT_MAX):
                raise LayoutError(
                    f"channel {arc.channel_id}: cost and latency must be 0 to {WEIGHT_MAX - 1}"
                )
        if not all(0 <= latency_us < WEIGHT_MAX for latency_us in self.router_latencies_us):
            raise LayoutError(f"a router's latency must be 0 to {WEIGHT_MAX - 1} microseconds")


class SharedRisks:
    """Risks that several arcs run, numbered, each with its arcs.

    Those of a link are its two directions, of which no path uses both.
    """

    __slots__ = ("arcs_of", "is_link", "of_arc")

    def __init__(self, arcs: Sequence[Arc]) -> None:
        named: dict[str, list[int]] = {}
        for index, arc in enumerate(arcs):
            for risk in arc.risks:
                named.setdefault(risk, []).append(index)
        shared = dict.fromkeys(tuple(running) for running in named.values() if len(running) > 1)
        self.arcs_of = [frozenset(running) for running in shared]
        self.is_link = [_are_one_link([arcs[index] for index in running]) for running in shared]
        self.of_arc: dict[int, tuple[int, ...]] = {}
        for number, running in enumerate(shared):
            for index in running:
                self.of_arc[index] = (*self.of_arc.get(index, ()), number)


def _are_one_link(arcs: Sequence[Arc]) -> bool:
    """Return whether these are two arcs, of which one leads back where the other one begins."""
    ends = [(arc.from_router, arc.to_router) for arc in arcs]
    return len(ends) == 2 and ends[0] == ends[1][::-1]  # noqa: PLR2004 - there and back


def distances(
    neighbours: Sequence[Iterable[tuple[int, int]]],
    weights: Sequence[int],
    start_at: Mapping[int, int],
    bound: int = NEVER - 1,
) -> list[int]:
    """Return the distance of every router from the starts, which have initial distances.

    Routers beyond the bound count as unreachable.
    """
    found = [NEVER] * len(neighbours)
    heap: list[tuple[int, int]] = []
    for router, distance in start_at.items():
        found[router] = distance
        heappush(heap, (distance, router))
    while heap:
        distance, router = heappop(heap)
        if distance > found[router]:
            continue
        for arc, other in neighbours[router]:
            farther = distance + weights[arc]
            if farther < found[other] and farther <= bound:
                found[other] = farther
                heappush(heap, (farther, other))
    return found


def lowered(
    graph: PathGraph, distances_to: list[int], prices: Sequence[int], cheaper: Iterable[int]
) -> list[int]:
    """Return distances updated for cheaper arcs; only changed routers are visited."""
    found = distances_to.copy()
    heap: list[tuple[int, int]] = []
    for arc in cheaper:
        tail, distance = graph.tails[arc], found[graph.heads[arc]] + prices[arc]
        if distance < found[tail]:
            found[tail] = distance
            heappush(heap, (distance, tail))
    while heap:
        distance, router = heappop(heap)
        if distance > found[router]:
            continue
        for arc, other in graph.arcs_into[router]:
            farther = distance + prices[arc]
            if farther < found[other]:
                found[other] = farther
                heappush(heap, (farther, other))
    return found


def _neighbours(count: int, near: Sequence[int], far: Sequence[int]) -> list[Neighbours]:
    found: list[list[tuple[int, int]]] = [[] for _ in range(count)]
    for arc, (here, there) in enumerate(zip(near, far, strict=True)):
        found[here].append((arc, there))
    return [tuple(pairs) for pairs in found]
