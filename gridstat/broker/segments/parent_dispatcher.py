"""Dispatches the messages of the parent, and reports durable changes to it after each unit of work.

A message of the parent is checked for its term, dropped before the join, and given to the
capability that registered it. An exception in a handler abandons the unit of work and ends the
session, while the cloud is served on. After each join all capabilities send their state again
(`parent_joined`), those here in the order borders, held segments, identifiers, contracts, patterns.
A restart restores the components from the registry (`resume`). A cloud without a parent has a
dispatcher too, which never receives a message. A start without the parent that the cloud had ends
segments, contracts across clouds and borders (`orphaned`), and keeps the identifiers that the
parent leased.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.snapshot import asked_snapshot, position_snapshot
from gridstat.broker.requests.outcomes import refused
from gridstat.broker.requests.subscriptions import sources_of
from gridstat.broker.segments.cloud_distances import CloudDistances
from gridstat.broker.segments.leaf_borders import (
    ABSTRACT_LINKS_TIMER,
    SEARCH_TIMER,
    LeafBorders,
)
from gridstat.broker.segments.leaf_identifiers import NUMBERS_TIMER, LeafIdentifiers
from gridstat.broker.segments.pattern_watches import PatternWatches
from gridstat.broker.segments.pending_answers import ANSWER_TIMER
from gridstat.broker.segments.remote_contracts import REQUEST_TIMER, RemoteContracts
from gridstat.broker.segments.segment_reservations import RELEASE_TIMER, SegmentReservations
from gridstat.model.access_rules import Action, Wish
from gridstat.model.errors import NoSuchVariable, NotAttached, NotAuthorised, Refused
from gridstat.model.quota import share_ppm
from gridstat.net.command.router_messages import BackPressureChanged, ChannelStateChanged
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
    from collections.abc import Mapping

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.tree_effects import TreeEffects
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Subscription
    from gridstat.broker.requests.banded_contracts import BandedContracts
    from gridstat.broker.requests.notices import Notices
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.messages import Message
    from gridstat.net.command.router_messages import ReportRouter


class ParentDispatcher:
    """Owns the components that connect this cloud to a tree of clouds."""

    def __init__(
        self,
        context: BrokerContext,
        session: ParentSession,
        bands: BandedContracts,
        health: RouterHealth,
        requests: RequestIntake,
        grants: PendingGrants,
        notices: Notices,
    ) -> None:
        self._context = context
        self.session = session
        distances = CloudDistances(context.reservations.resources)
        self.borders = LeafBorders(context, self.session, health, distances)
        self.segments = SegmentReservations(context, self.session, health, bands)
        self.contracts = RemoteContracts(
            context,
            requests,
            grants,
            notices,
            self.session,
            self.borders,
            self.segments.failed_paths,
        )
        self.identifiers = LeafIdentifiers(context, requests, self.session)
        self._watches = PatternWatches(context, self.session, self.contracts)

    def position_capability(self, effects: TreeEffects) -> LeafCapability:
        """Register the cloud's position in the tree: parent, identifiers, borders.

        It is apart from `capability`, because a snapshot holds it before end-points and contracts,
        while messages and resumption follow theirs.
        """
        return LeafCapability(
            name="position",
            operations=effects.position_operations(),
            snapshot=partial(position_snapshot, self._context.registry),
            orphaned=self.borders.orphaned,
        )

    def capability(self, effects: TreeEffects) -> LeafCapability:
        """Register segments and contracts across clouds, with the parent's messages about them."""
        borders, contracts, segments = self.borders, self.contracts, self.segments
        return LeafCapability(
            name="contracts across clouds",
            operations=effects.contract_operations(),
            snapshot=partial(asked_snapshot, self._context.registry),
            orphaned=self._orphaned,
            resume=self.resume,
            parent_messages={
                WantBorders: borders.want,
                OpenBorder: borders.open,
                CloseBorder: borders.close,
                Lookup: self._look_up,
                Reserve: segments.reserve,
                Commit: segments.commit,
                Release: segments.release,
                ContractGranted: contracts.granted,
                ContractRefused: contracts.refused,
                ContractEnded: contracts.ended,
                NumbersLeased: self.identifiers.leased,
                WatchNames: self._watches.begin,
                EndWatch: self._watches.end,
                NamesFound: self._watches.found,
            },
            router_messages={
                ChannelStateChanged: self._channel_changed,
                BackPressureChanged: borders.back_pressure_changed,
            },
            timers={
                REQUEST_TIMER: contracts.request_all,
                ANSWER_TIMER: contracts.deadlines.expire,
                RELEASE_TIMER: segments.release_due,
                NUMBERS_TIMER: self.identifiers.request_again,
                ABSTRACT_LINKS_TIMER: borders.check_abstract_links,
                SEARCH_TIMER: borders.continue_search,
            },
            router_reported=self._router_reported,
            router_lost=self._router_lost,
            parent_joined=self._send_state,
            persisted=borders.schedule_search,
            # News for the parent are collected during the turn and sent once, in a fixed order.
            turn_ended=self.end_turn,
        )

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
            self._context.note("message_failed", said=name, error=repr(error))
            self.session.end(Refused(f"the broker failed to handle {name}"))
            return True

    def _dispatch(self, message: TreeMessageBase) -> bool:
        if not self.session.accepts(message):
            return True
        if isinstance(message, TreeJoined):
            if self.session.join(message):
                self._context.capabilities.parent_joined()
            return True
        if not self.session.is_joined:
            return True  # The parent sends its state again after the join.
        handler = self._context.capabilities.parent_messages.get(type(message))
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

    # Access rules.

    def watch(self, pattern_id: int) -> None:
        """Ask other clouds for the names of a pattern again."""
        self._watches.watch(pattern_id)

    def offer_again(self) -> None:
        """Send the watches of other clouds the names again that they may have."""
        self._watches.offer_again()

    def withdraw(self, contract: str, generation: int, reason: str) -> None:
        """Note why a segment ends that a reader of another cloud may no longer have."""
        self.segments.note_withdrawn(contract, generation, reason)

    def explain_ends(self, reasons: Mapping[int, str]) -> None:
        """Note why access rules end contracts across clouds that may not be answered yet."""
        self.contracts.note_ended(reasons)

    def _orphaned(self) -> list[Operation]:
        """Return the ends of segments, and then of contracts across clouds."""
        return [*self.segments.orphaned(), *self.contracts.orphaned()]

    def resume(self) -> None:
        """Restore the components from the registry after a start."""
        self.contracts.notify_orphaned()
        self.identifiers.resume()
        self.contracts.answers.resume()
        self.contracts.deadlines.resume()

    def _routers_changed(self) -> None:
        """Report border routers after a router connected, disconnected or fell silent."""
        self.borders.report_changes()
        self.borders.schedule_search()

    def _router_lost(self, _: str) -> None:
        self._routers_changed()

    def _router_reported(self, name: str, _: ReportRouter, *, is_new: bool) -> None:
        self.borders.router_reported(name, is_new=is_new)
        self._routers_changed()

    def _channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        """Handle the state of a channel, of this cloud or between clouds.

        A channel of our own may show that a router is down.
        """
        self.borders.channel_changed(reporter, message)
        self._routers_changed()

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
        try:
            if not message.is_flood:  # Operators flood by their role; readers need a rule.
                wish = Wish(message.reader, Action.SUBSCRIBE, message.name)
                self._context.permissions.check(wish)
        except NotAuthorised as error:
            not_exported = refused(error)
            self.session.send(LookedUp(term=term, lookup=message.lookup, refused=not_exported))
            return
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
            LookedUp(
                term=term,
                lookup=message.lookup,
                variable=publication.variable,
                starts=starts,
                publisher=publication.publisher,
                publisher_share_ppm=share_ppm(self._context.quotas.of(publication.publisher)),
            )
        )
