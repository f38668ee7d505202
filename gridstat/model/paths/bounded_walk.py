"""Exact search for the cheapest single walk within a latency bound.

Labels (cost, latency) are settled in the order of cost plus its lower bound to the sink. At one
node a later label is kept only if it is faster than all earlier ones, and if the bound can still be
met from there.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING

from gridstat.model.paths.graph import NEVER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.flow import Network


def bounded_walk(
    network: Network,
    costs: tuple[Sequence[int], Sequence[int]],
    latencies_us: tuple[Sequence[int], Sequence[int]],
    bound_us: int,
    budget: Budget,
) -> list[int] | None:
    """Return the arcs of the cheapest walk from the only origin to the sink; None if all are late.

    Cost and latency are each given as weights of the arcs and potentials of the labels. A spent
    budget ends the search without a walk.
    """
    cost_of, cost_to = costs
    latency_of, latency_to = latencies_us
    out, sink = network.out, network.sink
    origin = network.origins[0][0]
    fastest = [NEVER] * len(out)
    trail: list[tuple[int, int]] = []
    heap = [(cost_to[origin], 0, origin, -1, -1)]
    while heap:
        cost, latency_us, label, arc, before = heappop(heap)
        if latency_us >= fastest[label]:
            continue
        fastest[label] = latency_us
        trail.append((arc, before))
        if label == sink:
            return _arcs(trail)
        if budget.is_spent():
            return None
        here, reached = len(trail) - 1, cost - cost_to[label]
        for onward, head in out[label]:
            later_us = latency_us + latency_of[onward]
            if later_us < fastest[head] and later_us + latency_to[head] <= bound_us:
                farther = reached + cost_of[onward] + cost_to[head]
                heappush(heap, (farther, later_us, head, onward, here))
    return None


def _arcs(trail: list[tuple[int, int]]) -> list[int]:
    arcs: list[int] = []
    arc, before = trail[-1]
    while before >= 0:
        arcs.append(arc)
        arc, before = trail[before]
    return arcs[::-1]
