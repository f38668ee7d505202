"""Where end-points are: sessions with edges that come and go, and edges that do themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import NotAttached
from gridstat.net.command.router_messages import DetachEndPoint

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.notices import Notices

GRACE_TIMER: Final = "grace/"
SETTLED_TIMER: Final = "settled/"
AWAY_TIMER: Final = "away/"


class EndPointPresence:
    """The grace time of an end-point runs exactly while it is at no edge."""

    def __init__(self, context: BrokerContext, notices: Notices) -> None:
        self._context = context
        self._notices = notices
        self._edge_lost_ns: dict[str, int] = {}
        self._gone: set[tuple[str, str]] = set()
        """Edges and the end-points that were at them; a fact that no failed write undoes."""

    def session_lost(self, edge: str, name: str) -> None:
        """An edge says that an end-point's session is gone; only an attachment brings it back."""
        registry = self._context.registry
        if name in registry.endpoints or name in registry.retired:
            self._gone.add((edge, name))
        endpoint = registry.endpoints.get(name)
        if endpoint is not None and edge in endpoint.attachments:
            self._see_down(endpoint, edge)
            self.look_later(endpoint)

    def session_found(self, edge: str, name: str) -> None:
        """An edge says that an end-point has a session; whose it is, its attachment will tell."""
        self._gone.discard((edge, name))

    def attached_again(self, edge: str, name: str, incarnation: str) -> None:
        """A request to attach was repeated by a later session: the end-point is there, after all.

        The first session may have broken between the two.
        """
        endpoint = self._context.registry.endpoints.get(name)
        if (
            endpoint is not None
            and endpoint.incarnation == incarnation
            and edge in endpoint.attachments
        ):
            self.session_found(edge, name)
            self._see_up(endpoint, edge)

    def undone(self) -> None:
        """Decisions were taken back; who has gone meanwhile is gone from what is back, too."""
        registry = self._context.registry
        self._gone = {
            (edge, name)
            for edge, name in self._gone
            if name in registry.endpoints or name in registry.retired
        }
        for edge, name in sorted(self._gone):
            endpoint = registry.endpoints.get(name)
            if endpoint is not None and edge in endpoint.attachments:
                self._see_down(endpoint, edge)

    def edge_reported(self, edge: str, attached: tuple[str, ...], *, is_new: bool) -> None:
        """An edge has a new session; at most the end-points that it names are still at it.

        Those that it names and that have ended meanwhile are sent away, so that they attach anew.
        """
        self._context.cancel_timer(AWAY_TIMER + edge)
        there = frozenset() if is_new else frozenset(attached)
        for name in sorted(there & self._context.registry.retired.keys()):
            if name not in self._context.registry.endpoints:
                self._send_away(edge, name)
        lost_ns = self._edge_lost_ns.pop(edge, 0)
        for name in sorted(self._context.registry.attached_to.get(edge, ())):
            endpoint = self._context.registry.endpoints[name]
            if name in there:
                self.session_found(edge, name)
                self._see_up(endpoint, edge)
                endpoint.attachments[edge].is_doubtful = True
                self._notices.repeat(name, edge, lost_ns=lost_ns)
            else:
                self.session_lost(edge, name)

    def edge_lost(self, edge: str) -> None:
        """An edge's own session is gone; what is pushed to its end-points waits for the next."""
        self._edge_lost_ns[edge] = self._context.now_ns
        self._context.set_timer(AWAY_TIMER + edge, self._context.settings.grace_ns)

    def edge_stays_away(self, edge: str) -> None:
        """Nobody has called it silent, and yet it is away so long that its end-points are too.

        Not while no router at all has a session: then it is the broker that is away.
        """
        tables, routers = self._context.tables, self._context.registry.routers
        if edge in routers and tables[edge].is_connected:
            return
        if not any(tables[name].is_connected for name in routers):
            self._context.set_timer(AWAY_TIMER + edge, self._context.settings.grace_ns)
            return
        self._context.note("edge_stays_away", edge=edge)
        self._leave(edge)

    def edge_is_down(self, edge: str) -> None:
        self._leave(edge)

    def _leave(self, edge: str) -> None:
        for name in sorted(self._context.registry.attached_to.get(edge, ())):
            self.session_lost(edge, name)

    def _send_away(self, edge: str, name: str) -> None:
        error = NotAttached(f"{name} is not attached to {edge} any more; attach anew")
        order = DetachEndPoint(
            term=self._context.registry.term,
            endpoint=name,
            code=error.code,
            reason=str(error.args[0]),
        )
        self._context.send_router(edge, order)

    def _see_up(self, endpoint: EndPoint, edge: str) -> None:
        was_up = endpoint.attachments[edge].is_up
        endpoint.attachments[edge].is_up = True
        self.judge(endpoint)
        if not was_up:
            self.look_later(endpoint)

    def _see_down(self, endpoint: EndPoint, edge: str) -> None:
        endpoint.attachments[edge].is_up = False
        self.judge(endpoint)

    def look_later(self, endpoint: EndPoint) -> None:
        """Whoever leaves or comes back to several edges does so one by one: wait for the last."""
        if endpoint.publications or endpoint.subscriptions:
            self._context.set_timer(
                SETTLED_TIMER + endpoint.name, self._context.settings.settle_after_ns
            )

    def judge(self, endpoint: EndPoint) -> None:
        """Let the grace time begin or end, as the end-point is somewhere or nowhere."""
        if endpoint.is_up and endpoint.lost_ns is not None:
            endpoint.lost_ns = None
            self._context.cancel_timer(GRACE_TIMER + endpoint.name)
        elif not endpoint.is_up and endpoint.lost_ns is None:
            endpoint.lost_ns = self._context.now_ns
            self._context.set_timer(GRACE_TIMER + endpoint.name, self._context.settings.grace_ns)
