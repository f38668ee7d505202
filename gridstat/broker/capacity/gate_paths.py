"""Disjoint paths of a segment that enter and leave the cloud by given channels, one path a channel.

The ordinary search knows edge routers: it may use one of them twice and another not at all, and
leads no path through one. That is right for end-points. The channel of a gate, however, carries
exactly one path, several gates may lie at one router, and a path may cross the gate router of
another. So where the ordinary search finds no node-disjoint answer, each gate becomes a terminal of
its own, joined to its router by an arc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import Gates, gates_used, routers_at
from gridstat.model.paths import Arc, Found, FoundPath, NotFound, PathGraph

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Resources

GRAPHS_MAX: Final = 64


def is_exact(entries: Gates, exits: Gates, found: Found | NotFound) -> bool:
    """Return whether no search by gates could find better paths than the ordinary one."""
    if isinstance(found, NotFound):
        return found.reason == "disconnected"
    if len(found.paths) == 1:
        return True
    return found.is_node_disjoint and all(
        not gates
        or (
            len(routers_at(gates)) == len(gates)
            and gates_used(gates, [path.routers[at] for path in found.paths]) is not None
        )
        for gates, at in ((entries, 0), (exits, -1))
    )


def entry_name(channel_id: int) -> str:
    return f"(entry {channel_id})"


def exit_name(channel_id: int) -> str:
    return f"(exit {channel_id})"


class GateGraphs:
    """Graphs with gates, kept while the graph without them stays the same."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._base: PathGraph | None = None
        self._graphs: dict[tuple[Gates, Gates], PathGraph] = {}

    def graph(self, entries: Gates, exits: Gates, *, is_fresh: bool) -> PathGraph:
        base = self._resources.graph(is_fresh=is_fresh)
        if base is not self._base or len(self._graphs) >= GRAPHS_MAX:
            self._base = base
            self._graphs.clear()
        found = self._graphs.get((entries, exits))
        if found is None:
            latencies = dict(zip(base.routers, base.router_latencies_us, strict=True))
            gates = [
                *((entry_name(number), router) for router, number in entries),
                *((router, exit_name(number)) for router, number in exits),
            ]
            arcs = [
                Arc(-number, one, other, 0, 0) for number, (one, other) in enumerate(gates, start=1)
            ]
            found = self._graphs[entries, exits] = PathGraph([*base.arcs, *arcs], latencies)
        return found


def without_gates(entries: Gates, exits: Gates, found: Found) -> Found:
    """Return the paths between the routers of the gates."""
    return Found(
        tuple(
            FoundPath(
                path.routers[1 if entries else 0 : -1 if exits else None],
                path.channel_ids[1 if entries else 0 : -1 if exits else None],
                path.latency_us,
                path.cost,
            )
            for path in found.paths
        ),
        found.is_node_disjoint,
        found.shares_edge,
        found.is_optimal,
    )
