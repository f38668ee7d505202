"""Oracle: how many disjoint paths the wires allow, by maximum flow (Ford, Fulkerson).

It knows every wire of the tree and nothing of brokers, borders or reports. Two rules bound a
contract between clouds. It stays in the scope of its owner. And it leaves each scope that holds the
publisher and not the subscriber once, and enters each that holds the subscriber and not the
publisher once: no path comes back into the part of the tree in which it began.

Channels that run one duct all leave one router, or all reach one. Of all paths one may run the
duct, and once if it makes no circle: in the flow, these channels have one unit together.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING, NamedTuple

from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lab.tree_plan import TreePlan

Node = tuple[str, bool]
"""A router and its side: channels lead into the first side, and out of the other."""
Capacities = dict[Node, dict[Node, int]]
_SOURCE: Node = ("", False)
_SINK: Node = ("", True)
MANY = 1 << 20


class Ends(NamedTuple):
    """Edge routers of the publisher and of the subscriber."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]


class Wire(NamedTuple):
    """One channel: its two routers, its owner and number there, its latency and its ducts."""

    from_router: str
    to_router: str
    owner: str
    number: int
    latency_us: int = 0
    ducts: tuple[str, ...] = ()


class Allowed(NamedTuple):
    """Most paths without a common router (but the edges), and without a common channel.

    No path takes less time than `fastest_us`, on its wires alone; it is 0 if there is no path.
    """

    node_disjoint: int
    link_disjoint: int
    fastest_us: int = 0


def allowed(plan: TreePlan, ends: Ends) -> Allowed:
    """Return how many disjoint paths the wires allow between two end-points."""
    wires = list(_wires_in_scope(plan, ends))
    return Allowed(
        _max_flow(wires, ends, is_node_disjoint=True),
        _max_flow(wires, ends, is_node_disjoint=False),
        _fastest_us(wires, ends),
    )


def wires_of(plan: TreePlan) -> Iterator[Wire]:
    """Yield every wire of a tree."""
    for owner, channels in (
        *((name, cloud.channels) for name, cloud in plan.clouds.items()),
        *((name, broker.channels) for name, broker in plan.brokers.items()),
    ):
        for one in channels:
            yield Wire(
                one.from_router,
                one.to_router,
                owner,
                int(one.channel_id),
                one.latency_us,
                one.risks,
            )


def _wires_in_scope(plan: TreePlan, ends: Ends) -> Iterator[Wire]:
    publisher, subscriber = cloud_of(ends.sources[0]), cloud_of(ends.targets[0])
    owner = plan.common(publisher, subscriber)
    left, entered = (
        [name for name in plan.scope(cloud) if owner in plan.brokers[name].above]
        for cloud in (publisher, subscriber)
    )
    for wire in wires_of(plan):
        begins, leads = plan.scope(cloud_of(wire.from_router)), plan.scope(cloud_of(wire.to_router))
        if owner not in begins or owner not in leads or wire.owner in plan.brokers[owner].above:
            continue
        comes_back = any(one in leads and one not in begins for one in left)
        goes_away = any(one in begins and one not in leads for one in entered)
        if not comes_back and not goes_away:
            yield wire


def _max_flow(wires: list[Wire], ends: Ends, *, is_node_disjoint: bool) -> int:
    capacities: Capacities = {}
    edges = {*ends.sources, *ends.targets}
    routers = edges.union(*((wire.from_router, wire.to_router) for wire in wires))
    for router in routers:
        within = 1 if is_node_disjoint and router not in edges else MANY
        _add(capacities, (router, False), (router, True), within)
    for wire in wires:
        _add_wire(capacities, wire)
    for router in ends.sources:
        _add(capacities, _SOURCE, (router, False), MANY)
    for router in ends.targets:
        _add(capacities, (router, True), _SINK, MANY)
    count = 0
    while (path := _augmenting_path(capacities)) is not None:
        for here, there in path:
            capacities[here][there] -= 1
            capacities[there][here] += 1
        count += 1
    return count


def _add_wire(capacities: Capacities, wire: Wire) -> None:
    """Add one unit from router to router: through the duct of the wire, if it runs one."""
    here, there = (wire.from_router, True), (wire.to_router, False)
    if not wire.ducts:
        _add(capacities, here, there, 1)
        return
    (duct,) = wire.ducts
    if duct.endswith("-out"):
        capacities.setdefault(here, {}).setdefault((duct, False), 0)
        capacities.setdefault((duct, False), {}).setdefault(here, 0)
        capacities[here][duct, False] = 1
        _add(capacities, (duct, False), there, 1)
    else:
        _add(capacities, here, (duct, False), 1)
        capacities[duct, False].setdefault(there, 0)
        capacities.setdefault(there, {}).setdefault((duct, False), 0)
        capacities[duct, False][there] = 1


def _fastest_us(wires: list[Wire], ends: Ends) -> int:
    """Return the latency of the fastest path, on its wires alone (Dijkstra)."""
    onward: dict[str, list[Wire]] = {}
    for wire in wires:
        onward.setdefault(wire.from_router, []).append(wire)
    open_ = [(0, router) for router in ends.sources]
    seen: set[str] = set()
    while open_:
        latency_us, router = heappop(open_)
        if router in ends.targets:
            return latency_us
        if router not in seen:
            seen.add(router)
            for wire in onward.get(router, ()):
                heappush(open_, (latency_us + wire.latency_us, wire.to_router))
    return 0


def _add(capacities: Capacities, here: Node, there: Node, units: int) -> None:
    capacities.setdefault(here, {}).setdefault(there, 0)
    capacities.setdefault(there, {}).setdefault(here, 0)
    capacities[here][there] += units


def _augmenting_path(capacities: Capacities) -> list[tuple[Node, Node]] | None:
    before: dict[Node, Node] = {_SOURCE: _SOURCE}
    open_ = deque([_SOURCE])
    while open_:
        here = open_.popleft()
        for there, left in capacities[here].items():
            if left > 0 and there not in before:
                before[there] = here
                open_.append(there)
    if _SINK not in before:
        return None
    path = []
    there = _SINK
    while there != _SOURCE:
        path.append((before[there], there))
        there = before[there]
    return path
