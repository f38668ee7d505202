"""Hears the parent, and tells it at the end of each turn what has become durable in it.

A cloud without a parent has this context too; nobody ever speaks to it then.
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
    from gridstat.broker.requests.request_intake import Request, RequestIntake
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.endpoint_messages import Publish
    from gridstat.net.command.messages import Message
    from gridstat.net.command.router_messages import ChannelStateChanged


class ParentDispatcher:
    """All that this cloud is in a tree of clouds."""

    def __init__(
        self,
        context: BrokerContext,
        link: ParentSession,
        health: RouterHealth,
        requests: RequestIntake,
        grants: PendingGrants,
        notices: Notices,
        handlers: Mapping[type[TreeMessageBase], Callable[[Any], None]],
        publish: Callable[[Request, Publish], None],
    ) -> None:
        """`handlers` serve messages of other parts; `publish` decides a held Publish again."""
        self._context = context
        self.link = link
        ways = CloudDistances(context.reservations.resources)
        self.borders = LeafBorders(context, self.link, health, ways)
        self.asking = RemoteContracts(context, requests, grants, notices, self.link, self.borders)
        self.numbers = LeafIdentifiers(context, requests, self.link, publish)
        self.reserving = SegmentReservations(context, self.link, health)
        self._watching = PatternWatches(context, self.link, self.asking)
        self.words: dict[type[TreeMessageBase], Callable[[Any], None]] = {
            WantBorders: self.borders.want,
            OpenBorder: self.borders.open,
            CloseBorder: self.borders.close,
            Lookup: self._look_up,
            Reserve: self.reserving.reserve,
            Commit: self.reserving.commit,
            Release: self.reserving.release,
            ContractGranted: self.asking.granted,
            ContractRefused: self.asking.refused,
            ContractEnded: self.asking.ended,
            NumbersLeased: self.numbers.leased,
            WatchNames: self._watching.begin,
            EndWatch: self._watching.end,
            NamesFound: self._watching.found,
            **handlers,
        }

    def is_parent(self, peer: str) -> bool:
        return bool(self._context.settings.parent) and peer == self.link.peer

    def take(self, message: Message) -> bool:
        """Do what the parent says; False if a parent has no business to say this."""
        if not isinstance(message, TreeMessageBase):
            return False
        try:
            return self._obey(message)
        except Exception as error:  # Whatever it says, the cloud is served; the note is to mend it.
            self._context.abandon()
            said = type(message).__name__
            self._context.note("word_failed", said=said, error=repr(error))
            self.link.leave(Refused(f"the broker failed over what {said} says"))
            return True

    def _obey(self, message: TreeMessageBase) -> bool:
        if not self.link.obeys(message):
            return True
        if isinstance(message, TreeJoined):
            if self.link.join(message):
                self._joined()
            return True
        if not self.link.is_joined:
            return True  # Said before we were taken in; it is said again then.
        do = self.words.get(type(message))
        if do is not None:
            do(message)
        return do is not None

    def segment_changed(self, found: Subscription) -> None:
        self.reserving.segment_changed(found)
        if not found.record.is_reserved:
            failed = self.reserving.failed_paths(found.record)
            self.asking.segment_changed(found.record.contract, failed)

    def end_turn(self) -> None:
        """What has become durable in this turn is told, in the order in which it matters."""
        if not self._context.registry.tree.news:
            return
        news = self._context.registry.tree.news.take()
        for endpoint in news.left:
            self.asking.answers.leave(endpoint)
        for number in news.ending:
            self.asking.end(number)
        if not self._context.settings.parent:
            return
        for contract, generation, name in news.ended_segments:
            self.reserving.segment_ended(contract, generation, name)
            self.asking.segment_released(contract)
        for number in news.asked:
            self.asking.ask(number)
        for pattern_id in news.patterns:
            self._watching.watch(pattern_id)
        for number in news.freed:
            self.numbers.free(number)
        for name in news.published:
            self._watching.published(name)
        if news.ended_segments:
            self.borders.close_unused()

    def resume(self) -> None:
        """After a start."""
        self.numbers.resume()
        self.asking.answers.resume()
        self.asking.patience.resume()

    def routers_changed(self) -> None:
        """A router has come, gone, or is found silent."""
        self.borders.look()
        self.borders.look_later()

    def router_reported(self, name: str, *, is_new: bool) -> None:
        self.borders.router_reported(name, is_new=is_new)
        self.routers_changed()

    def channel_changed(self, reporter: str, message: ChannelStateChanged) -> None:
        """One of our own, which may say that a router is down; or one between clouds."""
        self.borders.channel_changed(reporter, message)
        self.routers_changed()

    def _joined(self) -> None:
        """Notify the parent all that it may not know, or have forgotten."""
        self.borders.forget()
        self._watching.forget()
        self.reserving.tell_held()
        self.numbers.ask_again()
        self.asking.ask_all()
        self._watching.watch_all()

    def _look_up(self, word: Lookup) -> None:
        registry, term = self._context.registry, self.link.term
        publication = registry.publications.get(word.name)
        if publication is None:
            missing = refused(NoSuchVariable(f"nobody publishes {word.name}"))
            self.link.tell(LookedUp(term=term, lookup=word.lookup, refused=missing))
            return
        try:
            edges = sources_of(registry, publication)
        except NoSuchVariable as error:
            # It is only away: whoever has a contract with it keeps that.
            away = refused(NotAttached(str(error.args[0])))
            self.link.tell(LookedUp(term=term, lookup=word.lookup, refused=away))
            return
        starts = self.borders.nearness(edges, is_start=True)
        self.link.tell(
            LookedUp(term=term, lookup=word.lookup, variable=publication.variable, starts=starts)
        )
