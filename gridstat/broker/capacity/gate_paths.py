"""Disjoint paths of a segment that enter and leave the cloud by given channels, one path a channel.

The ordinary search knows edge routers: it may use one of them twice and another not at all, and
leads no path through one. That is right for end-points. The channel of a gate, however, carries
exactly one path, several gates may lie at one router, and a path may cross the gate router of
another. So where the ordinary search finds no node-disjoint answer, each gate becomes a terminal of
its own, joined to its router by an arc. Where each entry has to lead to one exit, the arcs of both
have a risk in common: no two paths run a risk, so the path of one is that of the other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocation import Gates, gates_used, pairs_used, routers_at
from gridstat.model.paths import Arc, Found, FoundPath, NotFound, PathGraph

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Resources

GRAPHS_MAX: Final = 64


def is_exact(
    entries: Gates, exits: Gates, found: Found | NotFound, *, is_paired: bool = False
) -> bool:
    """Return whether no search by gates could find better paths than the ordinary one."""
    if isinstance(found, NotFound):
        return found.reason == "disconnected"
    if len(found.paths) == 1:
        return True
    ends = [(path.routers[0], path.routers[-1]) for path in found.paths]
    if is_paired and pairs_used(entries, exits, ends) is None:
        return False
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


def pair_name(at: int) -> str:
    """Return the risk that an entry and an exit have in common; no risk of a file is called so."""
    return f"(pair {at})"


class GateGraphs:
    """Graphs with gates, kept while the graph without them stays the same."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._base: PathGraph | None = None
        self._graphs: dict[tuple[Gates, Gates, bool], PathGraph] = {}

    def graph(
        self, entries: Gates, exits: Gates, *, is_fresh: bool, is_paired: bool = False
    ) -> PathGraph:
        base = self._resources.graph(is_fresh=is_fresh)
        if base is not self._base or len(self._graphs) >= GRAPHS_MAX:
            self._base = base
            self._graphs.clear()
        found = self._graphs.get((entries, exits, is_paired))
        if found is None:
            latencies = dict(zip(base.routers, base.router_latencies_us, strict=True))
            gates = [
                *((at, entry_name(gate[1]), gate[0]) for at, gate in enumerate(entries)),
                *((at, gate[0], exit_name(gate[1])) for at, gate in enumerate(exits)),
            ]
            arcs = [
                Arc(-number, one, other, 0, 0, (pair_name(at),) if is_paired else ())
                for number, (at, one, other) in enumerate(gates, start=1)
            ]
            found = PathGraph([*base.arcs, *arcs], latencies)
            self._graphs[entries, exits, is_paired] = found
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
