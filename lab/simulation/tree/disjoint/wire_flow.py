"""Oracle: how many disjoint paths the wires allow, by maximum flow (Ford, Fulkerson).

It knows every wire of the tree and nothing of brokers, borders or reports. Two rules bound a
contract between clouds. It stays in the scope of its owner. And it leaves each scope that holds the
publisher and not the subscriber once, and enters each that holds the subscriber and not the
publisher once: no path comes back into the part of the tree in which it began.
"""

from __future__ import annotations

from collections import deque
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
    """One channel by its two routers."""

    from_router: str
    to_router: str


class Allowed(NamedTuple):
    """Most paths without a common router (but the edges), and without a common channel."""

    node_disjoint: int
    link_disjoint: int


def allowed(plan: TreePlan, ends: Ends) -> Allowed:
    """Return how many disjoint paths the wires allow between two end-points."""
    wires = list(_wires_in_scope(plan, ends))
    return Allowed(
        _max_flow(wires, ends, is_node_disjoint=True),
        _max_flow(wires, ends, is_node_disjoint=False),
    )


def _wires_in_scope(plan: TreePlan, ends: Ends) -> Iterator[Wire]:
    publisher, subscriber = cloud_of(ends.sources[0]), cloud_of(ends.targets[0])
    owner = plan.common(publisher, subscriber)
    left, entered = (
        [name for name in plan.scope(cloud) if owner in plan.brokers[name].above]
        for cloud in (publisher, subscriber)
    )
    for cloud in plan.clouds.values():
        if owner in plan.scope(cloud.name):
            for channel in cloud.channels:
                yield Wire(channel.from_router, channel.to_router)
    for name, broker in plan.brokers.items():
        if owner not in (name, *broker.above):
            continue
        for channel in broker.channels:
            begins, leads = (
                plan.scope(cloud_of(end)) for end in (channel.from_router, channel.to_router)
            )
            comes_back = any(one in leads and one not in begins for one in left)
            goes_away = any(one in begins and one not in leads for one in entered)
            if not comes_back and not goes_away:
                yield Wire(channel.from_router, channel.to_router)


def _max_flow(wires: list[Wire], ends: Ends, *, is_node_disjoint: bool) -> int:
    capacities: Capacities = {}
    edges = {*ends.sources, *ends.targets}
    routers = edges.union(*wires)
    for router in routers:
        within = 1 if is_node_disjoint and router not in edges else MANY
        _add(capacities, (router, False), (router, True), within)
    for wire in wires:
        _add(capacities, (wire.from_router, True), (wire.to_router, False), 1)
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
