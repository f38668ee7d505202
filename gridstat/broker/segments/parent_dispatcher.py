"""Dispatches the messages of the parent, and reports durable changes to it after each unit of work.

A message of the parent is checked for its term, dropped before the join, and given to the component
in the table of handlers. An exception in a handler abandons the unit of work and ends the session,
while the cloud is served on. After each join all components send their state again, in the order
borders, held segments, identifiers, contracts, patterns. A restart restores the components from the
registry (`resume`). A cloud without a parent has a dispatcher too, which never receives a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.subscriptions import sources_of
from gridstat.broker.segments.cloud_distances import CloudDistances
from gridstat.broker.segments.leaf_borders import LeafBorders
from gridstat.broker.segments.leaf_identifiers import LeafIdentifiers
from gridstat.broker.segments.pattern_watches import PatternWatches
from gridstat.broker.segments.remote_contracts import RemoteContracts
from gridstat.broker.segments.segment_reservations import SegmentReservations
from gridstat.model.errors import NoSuchVariable, NotAttached, Refused
from gridstat.net.command.segment_messages import (
    Commit,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    LookedUp,
    Lookup,
    Release,
    Reserve,
)
from gridstat.net.command.tree_messages import (
    CloseBorder,
    EndWatch,
    NamesFound,
    NumbersLeased,
    OpenBorder,
    TreeJoined,
    TreeMessageBase,
    WantBorders,
    WatchNames,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.messages import Message
    from gridstat.net.command.router_messages import ChannelStateChanged


class ParentDispatcher:
    """Owns the components that connect this cloud to a tree of clouds."""

    def __init__(
        self,
        context: BrokerContext,
        session: ParentSession,
        health: RouterHealth,
        requests: RequestIntake,
        grants: PendingGrants,
        notices: Notices,
        handlers: Mapping[type[TreeMessageBase], Callable[[Any], None]],
    ) -> None:
        """`handlers` serve messages of other parts."""
        self._context = context
        self.session = session
        distances = CloudDistances(context.reservations.resources)
        self.borders = LeafBorders(context, self.session, health, distances)
        self.contracts = RemoteContracts(
            context, requests, grants, notices, self.session, self.borders
        )
        self.identifiers = LeafIdentifiers(context, requests, self.session)
        self.segments = SegmentReservations(context, self.session, health)
        self._watches = PatternWatches(context, self.session, self.contracts)
        self.handlers: dict[type[TreeMessageBase], Callable[[Any], None]] = {
            WantBorders: self.borders.want,
            OpenBorder: self.borders.open,
            CloseBorder: self.borders.close,
            Lookup: self._look_up,
            Reserve: self.segments.reserve,
            Commit: self.segments.commit,
            Release: self.segments.release,
            ContractGranted: self.contracts.granted,
            ContractRefused: self.contracts.refused,
            ContractEnded: self.contracts.ended,
            NumbersLeased: self.identifiers.leased,
            WatchNames: self._watches.begin,
            EndWatch: self._watches.end,
            NamesFound: self._watches.found,
            **handlers,
        }

    def is_parent(self, peer: str) -> bool:
        return bool(self._context.settings.parent) and peer == self.session.peer

    def take(self, message: Message) -> bool:
        """Handle a message of the parent; return False for a message that no parent may send."""
        if not isinstance(message, TreeMessageBase):
            return False
        try:
            return self._dispatch(message)
        except Exception as error:  # A bug in handling a parent must not stop serving the cloud.
            self._context.abandon()
            name = type(message).__name__
            self._context.note("word_failed", said=name, error=repr(error))
            self.session.end(Refused(f"the broker failed to handle {name}"))
            return True

    def _dispatch(self, message: TreeMessageBase) -> bool:
        if not self.session.accepts(message):
            return True
        if isinstance(message, TreeJoined):
            if self.session.join(message):
                self._send_state()
            return True
        if not self.session.is_joined:
            return True  # The parent sends its state again after the join.
        handler = self.handlers.get(type(message))
        if handler is not None:
            handler(message)
        return handler is not None

    def segment_changed(self, found: Subscription) -> None:
        self.segments.segment_changed(found)
        if not found.record.is_reserved:
            failed = self.segments.failed_paths(found.record)
            self.contracts.segment_changed(found.record.contract, failed)

    def end_turn(self) -> None:
        """Report changes that became durable in this unit of work: ends first, then requests."""
        if not self._context.registry.tree.news:
            return
        news = self._context.registry.tree.news.take()
        for endpoint in news.left:
            self.contracts.answers.endpoint_left(endpoint)
        for number in news.ending:
            self.contracts.end(number)
        if not self._context.settings.parent:
            return
        for contract, generation, name in news.ended_segments:
            self.segments.segment_ended(contract, generation, name)
            self.contracts.segment_released(contract)
        for number in news.asked:
            self.contracts.request(number)
        for pattern_id in news.patterns:
            self._watches.watch(pattern_id)
        for number in news.freed:
            self.identifiers.free(number)
        for name in news.published:
            self._watches.published(name)
        if news.ended_segments:
            self.borders.close_unused()

    def resume(self) -> None:
        """Restore the components from the registry after a start."""
        self.identifiers.resume()
        self.contracts.answers.resume()
        self.contracts.deadlines.resume()

    def routers_changed(self) -> None:
        """Report border routers after a router connected, disconnected or fell silent."""
        self.borders.report_changes()
        self.borders.schedule_search()

    def router_reported(self, name: str, *, is_new: bool) -> None:
        self.borders.router_reported(name, is_new=is_new)
        self.routers_changed()

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        """Handle the state of a channel, of this cloud or between clouds.

        A channel of our own may show that a router is down.
        """
        self.borders.channel_changed(reporter, message)
        self.routers_changed()

    def _send_state(self) -> None:
        """Send the parent all state that it may have missed or lost, after a join."""
        self.borders.forget_reported()
        self._watches.clear()
        self.segments.send_held()
        self.identifiers.request_again()
        self.contracts.request_all()
        self._watches.watch_all()

    def _look_up(self, message: Lookup) -> None:
        registry, term = self._context.registry, self.session.term
        publication = registry.publications.get(message.name)
        if publication is None:
            missing = refused(NoSuchVariable(f"nobody publishes {message.name}"))
            self.session.send(LookedUp(term=term, lookup=message.lookup, refused=missing))
            return
        try:
            edges = sources_of(registry, publication)
        except NoSuchVariable as error:
            # The publisher is only disconnected: contracts with it stay.
            away = refused(NotAttached(str(error.args[0])))
            self.session.send(LookedUp(term=term, lookup=message.lookup, refused=away))
            return
        starts = self.borders.distances_to_ends(edges, is_start=True)
        self.session.send(
            LookedUp(term=term, lookup=message.lookup, variable=publication.variable, starts=starts)
        )
