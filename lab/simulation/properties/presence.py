"""Presence of end-points: nobody is ended before he was away for the whole of his grace.

The simulator sees for itself who is there: an end-point that is attached to an edge, by a session
that works, while that edge has a session with the broker that works.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.world import NS_PER_S, PropertyBroken

if TYPE_CHECKING:
    from lab.simulation.cloud import Cloud
    from lab.simulation.endpoint_node import EndPointNode

RULE: Final = "an end-point has all of its grace to come back"


class Presence:
    """Time at which each end-point was last seen to be there."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud
        self._seen_ns: dict[str, int] = {}

    def look(self) -> None:
        """Note who is there now."""
        now_ns = self._cloud.world.now_ns
        for name, node in self._cloud.endpoints.items():
            if self._is_here(node):
                self._seen_ns[name] = now_ns

    def grace_over(self, name: str) -> None:
        """Check that an end-point that is ended for its absence was away for so long."""
        away_ns = self._cloud.world.now_ns - self._seen_ns.get(name, 0)
        if away_ns < self._cloud.swarm.settings.grace_ns:
            raise PropertyBroken(RULE, f"{name} was away for {away_ns / NS_PER_S} s at most")

    def _is_here(self, node: EndPointNode) -> bool:
        broker = self._cloud.broker_node
        if broker.is_paused:
            return False
        for edge in node.attached:
            session = node.sessions.get(f"router/{edge}")
            onward = broker.sessions.get(f"router/{edge}")
            if session is None or onward is None or session.is_cut or onward.is_cut:
                continue
            if session.is_at_server and onward.is_at_client:
                return True
        return False
