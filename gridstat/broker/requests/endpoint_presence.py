"""Presence of end-points at edges: their sessions, and the sessions of the edges themselves.

An edge reports the sessions of its end-points (`AttachmentChanged`, `ReportRouter.attached`). An
end-point whose last session is lost gets the grace timer; a session that is found again cancels it.
When the session of an edge itself with the broker is lost, its end-points count as present until
AWAY_TIMER fires after the grace time; while the broker itself is cut off the timer runs anew.
After the last session change SETTLED_TIMER lets recovery move the contracts of the end-point.
Losses are facts: a failed write does not undo them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.model.errors import NotAttached
from gridstat.net.command.router_messages import DetachEndPoint

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.registry import EndPoint
    from gridstat.broker.requests.notices import Notices
    from gridstat.net.command.router_messages import AttachmentChanged, ReportRouter

GRACE_TIMER: Final = "grace/"
SETTLED_TIMER: Final = "settled/"
AWAY_TIMER: Final = "away/"


class EndPointPresence:
    """The grace timer of an end-point runs exactly while it has a session with no edge."""

    def __init__(self, context: BrokerContext, notices: Notices) -> None:
        self._context = context
        self._notices = notices
        self._edge_lost_ns: dict[str, int] = {}
        self._lost: set[tuple[str, str]] = set()
        """Pairs of edge and end-point whose session is lost; no failed write undoes a loss."""

    def attachment_changed(self, edge: str, message: AttachmentChanged) -> None:
        if message.is_up:
            self.session_found(edge, message.endpoint)
        else:
            self.session_lost(edge, message.endpoint)

    def session_lost(self, edge: str, name: str) -> None:
        """Record that an edge has lost an end-point's session; only an attachment restores it."""
        registry = self._context.registry
        if name in registry.endpoints or name in registry.retired:
            self._lost.add((edge, name))
        endpoint = registry.endpoints.get(name)
        if endpoint is not None and edge in endpoint.attachments:
            self._mark_down(endpoint, edge)
            self.settle_later(endpoint)

    def session_found(self, edge: str, name: str) -> None:
        """Record that an edge has a session with an end-point; its Attach says of which process."""
        self._lost.discard((edge, name))

    def attached_again(self, edge: str, name: str, incarnation: str) -> None:
        """Record the session by which an end-point repeated a request to attach.

        The session of the first request may have broken in between.
        """
        endpoint = self._context.registry.endpoints.get(name)
        if (
            endpoint is not None
            and endpoint.incarnation == incarnation
            and edge in endpoint.attachments
        ):
            self.session_found(edge, name)
            self._mark_up(endpoint, edge)

    def rolled_back(self) -> None:
        """Apply known losses to attachments that a failed write has brought back."""
        registry = self._context.registry
        self._lost = {
            (edge, name)
            for edge, name in self._lost
            if name in registry.endpoints or name in registry.retired
        }
        for edge, name in sorted(self._lost):
            endpoint = registry.endpoints.get(name)
            if endpoint is not None and edge in endpoint.attachments:
                self._mark_down(endpoint, edge)

    def edge_reported(self, edge: str, report: ReportRouter, *, is_new: bool) -> None:
        """Take the end-points that an edge names at the start of its session; the others are lost.

        End-points that it names and that have ended meanwhile are detached, and attach anew. So are
        those that nobody knows any more since the journal in which they were attached is lost.
        """
        self._context.cancel_timer(AWAY_TIMER + edge)
        present = frozenset() if is_new else frozenset(report.attached)
        self._detach_forgotten(edge, report, present)
        lost_ns = self._edge_lost_ns.pop(edge, 0)
        for name in sorted(self._context.registry.attached_to.get(edge, ())):
            endpoint = self._context.registry.endpoints[name]
            if name in present:
                self.session_found(edge, name)
                self._mark_up(endpoint, edge)
                endpoint.attachments[edge].is_doubtful = True
                self._notices.repeat(name, edge, lost_ns=lost_ns)
            else:
                self.session_lost(edge, name)

    def _detach_forgotten(self, edge: str, report: ReportRouter, present: frozenset[str]) -> None:
        """Detach end-points that have ended, or were attached by a journal that is lost.

        Those may have attached to another edge meanwhile.
        """
        registry = self._context.registry
        forgotten = (present & registry.retired.keys()) - registry.endpoints.keys()
        if registry.is_lost(report.term):
            here = registry.attached_to.get(edge, set())
            forgotten = frozenset(report.attached) - here
        for name in sorted(forgotten):
            self._detach(edge, name)

    def edge_lost(self, edge: str) -> None:
        """Start the timer of an edge without a session; notices wait for its next session."""
        self._edge_lost_ns[edge] = self._context.now_ns
        self._context.set_timer(AWAY_TIMER + edge, self._context.settings.grace_ns)

    def edge_is_absent(self, edge: str) -> None:
        """Take the sessions of an edge as lost that has had no session for the grace time.

        While no router at all has a session the broker itself is cut off, and the timer runs anew.
        """
        tables, routers = self._context.tables, self._context.registry.routers
        if edge in routers and tables[edge].is_connected:
            return
        if not any(tables[name].is_connected for name in routers):
            self._context.set_timer(AWAY_TIMER + edge, self._context.settings.grace_ns)
            return
        self._context.note("edge_stays_away", edge=edge)
        self._lose_sessions(edge)

    def edge_is_down(self, edge: str) -> None:
        self._lose_sessions(edge)

    def _lose_sessions(self, edge: str) -> None:
        for name in sorted(self._context.registry.attached_to.get(edge, ())):
            self.session_lost(edge, name)

    def _detach(self, edge: str, name: str) -> None:
        error = NotAttached(f"{name} is not attached to {edge} any more; attach anew")
        order = DetachEndPoint(
            term=self._context.registry.term,
            endpoint=name,
            code=error.code,
            reason=str(error.args[0]),
        )
        self._context.send_router(edge, order)

    def _mark_up(self, endpoint: EndPoint, edge: str) -> None:
        was_up = endpoint.attachments[edge].is_up
        endpoint.attachments[edge].is_up = True
        self.update_grace(endpoint)
        if not was_up:
            self.settle_later(endpoint)

    def _mark_down(self, endpoint: EndPoint, edge: str) -> None:
        endpoint.attachments[edge].is_up = False
        self.update_grace(endpoint)

    def settle_later(self, endpoint: EndPoint) -> None:
        """Set the timer after which recovery looks at the contracts of an end-point."""
        if endpoint.publications or endpoint.subscriptions:
            self._context.set_timer(
                SETTLED_TIMER + endpoint.name, self._context.settings.settle_after_ns
            )

    def update_grace(self, endpoint: EndPoint) -> None:
        """Start or cancel the grace timer, as the end-point has sessions or none."""
        if endpoint.is_up and endpoint.lost_ns is not None:
            endpoint.lost_ns = None
            self._context.cancel_timer(GRACE_TIMER + endpoint.name)
        elif not endpoint.is_up and endpoint.lost_ns is None:
            endpoint.lost_ns = self._context.now_ns
            self._context.set_timer(GRACE_TIMER + endpoint.name, self._context.settings.grace_ns)
