"""Parts of a cloud, single or in a tree, that are not at rest yet; None if all are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.endpoint.endpoint_session import TICK, EndPointSession

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gridstat.broker.leaf_broker import LeafBroker
    from lab.simulation.endpoint_node import EndPointNode
    from lab.simulation.network import Network


def unrest_of_sessions(network: Network) -> str | None:
    """Return a session over which nothing arrives, if one of its ends has not noticed yet."""
    for peer, node in network.nodes.items():
        for other, session in node.sessions.items():
            if session.is_cut:
                return f"{peer} does not know yet that its session with {other} is cut"
    return None


def unrest_of_endpoints(endpoints: Mapping[str, EndPointNode]) -> str | None:
    for name, node in endpoints.items():
        if not node.is_up:
            if not node.is_gone:
                return f"end-point {name} is down"
            continue
        application = node.application
        if application.has_left:
            return f"end-point {name} is leaving"
        if not node.attached or node.attached | node.turned_away != set(node.edges):
            return f"end-point {name} is attached to {sorted(node.attached)} only"
        if not application.is_idle:
            asked = next(iter(application.waiting.values()), None)
            return f"end-point {name} waits for an answer: {asked}"
        if _is_busy(node):
            return f"the session of {name} is busy"
    return None


def _is_busy(node: EndPointNode) -> bool:
    """Return whether a session has something to do but to try again from time to time."""
    session, application = node.machine, node.application
    if isinstance(session, EndPointSession) and session.is_restoring:
        return True
    is_trying = node.turned_away or application.has_lost_contracts or application.withdrawn
    return node.has_timer(TICK) and not is_trying


def absent(broker: LeafBroker) -> str | None:
    """Return the absent end-point for which the broker waits, if any."""
    for name, publication in broker.registry.publications.items():
        if publication.is_dormant:
            return f"{name} is dormant"
    for name, endpoint in broker.registry.endpoints.items():
        if not endpoint.is_up:
            return f"the broker awaits the return of {name}"
    return None


def unusable(broker: LeafBroker, running: Collection[str]) -> str | None:
    """Return the channels and running routers that the broker takes for down, if any."""
    resources = broker.reservations.resources
    if resources.unusable_channels():
        return f"channels are not usable: {sorted(resources.unusable_channels())[:5]}"
    down = [name for name in resources.down_routers() if name in running]
    return f"routers are not usable: {sorted(down)}" if down else None
