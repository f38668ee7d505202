"""One search problem in arrays: terminals, number of paths, and a masked graph.

The terminals are labels of a flow network. Weights are shared with the graph unless the mask
changes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.paths.flow import Network
from gridstat.model.paths.graph import NEVER
from gridstat.model.paths.routes import Route

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.model.paths.graph import Neighbours
    from gridstat.model.paths.mask import Mask, Terminals


class Problem:
    """Terminals in a masked graph, as a network of labels with potentials for cost and latency.

    Pseudo arcs, numbered after the graph's, lead from several ends to a common sink and from a
    common origin to several starts, as many in parallel as the capacity.
    """

    __slots__ = (
        "_mask",
        "arcs_out",
        "costs",
        "dead",
        "graph",
        "latencies_to",
        "latencies_us",
        "network",
        "prices",
        "prices_to",
        "start_labels",
        "terminals",
    )

    def __init__(self, mask: Mask, terminals: Terminals) -> None:
        self._mask = mask
        self.graph = mask.graph
        self.terminals = terminals
        self.arcs_out = mask.graph.arcs_out
        self.costs = mask.costs
        self.prices = mask.prices
        self.latencies_us = mask.latencies_us
        ends = [router for router, _ in terminals.ends]
        self.prices_to = mask.prices_to(ends)
        self.latencies_to: list[int] = []
        self.dead = mask.dead_in(terminals)
        self.start_labels: dict[int, int] = {}
        self.network = self._network(mask.graph.labels_out.copy())

    def narrow(self, bound_us: int) -> None:
        """Remove every arc that is on no path within the bound, and tighten the potentials.

        Potentials for latency exist only after this call.
        """
        reach = self._mask.reach(self.terminals, bound_us)
        self.arcs_out = reach.arcs_out
        self.latencies_to, self.prices_to = reach.latencies_to, reach.prices_to
        self.prices, self.latencies_us = self._mask.prices, self._mask.latencies_us
        self.network = self._network(self.arcs_out * 2)

    def _network(self, out: list[Neighbours]) -> Network:
        graph = self.graph
        sink, pseudo_us = self._join_ends(out)
        self.start_labels = {}
        group: list[tuple[int, int]] = []
        for router, capacity in self.terminals.starts:
            self.start_labels[len(out)] = router
            for _ in range(capacity if len(self.terminals.starts) > 1 else 0):
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
            origins=[(len(out) - 1, self.terminals.units)],
            sink=sink,
            ends=frozenset(router for router, _ in self.terminals.ends),
            node_disjoint=self.terminals.node_disjoint,
            twins={},
            single=self.terminals.single,
        )

    def _join_ends(self, out: list[Neighbours]) -> tuple[int, list[int]]:
        """Return the sink's label, and the latencies of the pseudo arcs into it."""
        if len(self.terminals.ends) == 1:
            return self.terminals.ends[0][0], []
        sink, arc = len(out), len(self.graph.arcs)
        out.append(())
        for router, capacity in self.terminals.ends:
            out[router] = tuple((arc + copy, sink) for copy in range(capacity))
            arc += capacity
        return sink, [0] * (arc - len(self.graph.arcs))

    def price_potentials(self) -> list[int]:
        return self._potentials(self.prices_to)

    def latency_potentials(self) -> list[int]:
        return self._potentials(self.latencies_to)

    def _potentials(self, to_ends: Sequence[int]) -> list[int]:
        """Return bounds for every label from those for routers."""
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
        """Return the walk's real arcs as a simple path; None if none remain."""
        graph, count = self.graph, len(self.graph.arcs)
        kept = [arc for arc in arcs if arc < count]
        start = graph.tails[kept[0]]
        if not self.terminals.node_disjoint or start in self.network.ends:
            kept = self._without_cycles(kept)
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

    def _without_cycles(self, arcs: list[int]) -> list[int]:
        """Return the arcs without cycles, which may arise where two paths share a router."""
        heads = self.graph.heads
        kept: list[int] = []
        position = {self.graph.tails[arcs[0]]: 0}
        for arc in arcs:
            kept.append(arc)
            head = heads[arc]
            if head in position:
                del kept[position[head] :]
                position = {router: at for router, at in position.items() if at <= position[head]}
            else:
                position[head] = len(kept)
        return kept


def fits(latencies_us: Iterable[int], bounds_us: Sequence[int]) -> bool:
    """Return whether the sorted latencies each keep their bound."""
    return all(
        latency_us <= bound_us
        for latency_us, bound_us in zip(sorted(latencies_us), bounds_us, strict=True)
    )


def bounds_left_us(latencies_us: Iterable[int], bounds_us: Sequence[int]) -> list[int]:
    """Return the bounds left for other paths when each of these takes the lowest possible."""
    left_us = list(bounds_us)
    for latency_us in sorted(latencies_us):
        left_us.remove(next(bound_us for bound_us in left_us if bound_us >= latency_us))
    return left_us


def excess_us(latencies_us: Iterable[int], bounds_us: Sequence[int]) -> int:
    """Return the total by which the sorted latencies exceed their bounds."""
    return sum(
        latency_us - bound_us
        for latency_us, bound_us in zip(sorted(latencies_us), bounds_us, strict=True)
        if latency_us > bound_us
    )
