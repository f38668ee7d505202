"""Leaf broker of one cloud: a pure machine that admits, journals, orders routers and recovers.

Start reading at `handle`, which takes one event and returns instructions. Events go to the
capabilities that registered them (`_list_capabilities`, `leaf_capability.py`). A request passes
`command_dispatcher.py` and `request_intake.py` (signature, replay), `subscriptions.py` or a
neighbour of it (decision), `context.py` (journal) and `router_tables.py` (orders and their
confirmation), and returns as an answer. Failures are handled in `recovery.py`.

Peers and their messages:

- `router/NAME`: `ReportRouter` begins a session. `Forward` carries requests of end-points,
  `TableChanged` and `TableRefused` answer orders, and `AttachmentChanged`, `ChannelStateChanged`,
  `BackPressureChanged` and `ReportCounters` report states; `SeedAccepted` answers a seed.
- `operator/NAME`: commands, passed on by `operators/operator_commands.py`.
- `broker/NAME`, if it is the parent: messages, passed on by `segments/parent_dispatcher.py`.

Restart: `restore` replays the journal. Then `TermBegan` is written, and events that arrive before
it is durable are kept in `_early`. Once the term is durable the capabilities resume, and routers
are sent what they lack when they report. A failed write of the term is tried again by a timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.access.leaf_access import LeafAccess
from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.resources import Resources
from gridstat.broker.context import BrokerContext, Outside
from gridstat.broker.effects.cloud_effects import CloudEffects
from gridstat.broker.effects.effects import Effects
from gridstat.broker.effects.registration_effects import RegistrationEffects
from gridstat.broker.effects.reservations import Reservations
from gridstat.broker.effects.tree_effects import TreeEffects
from gridstat.broker.floods.leaf_floods import LeafFloods
from gridstat.broker.keys.leaf_keys import LeafKeys
from gridstat.broker.leaf_capability import LeafCapabilities, LeafCapability
from gridstat.broker.operators.operator_commands import OperatorCommands
from gridstat.broker.operators.survey import Surveyor
from gridstat.broker.path_replacement import PathReplacement
from gridstat.broker.placement import Placement
from gridstat.broker.records.number_ranges import numbers_from
from gridstat.broker.records.operations import TermBegan, after_mark, encode
from gridstat.broker.records.registry import Registry
from gridstat.broker.recovery import Recovery
from gridstat.broker.requests.banded_contracts import BandedContracts
from gridstat.broker.requests.command_dispatcher import CommandDispatcher
from gridstat.broker.requests.contract_changes import ContractChanges
from gridstat.broker.requests.contract_notices import ContractNotices
from gridstat.broker.requests.endpoint_attachments import EndPointAttachments
from gridstat.broker.requests.endpoint_presence import EndPointPresence
from gridstat.broker.requests.notices import Notices
from gridstat.broker.requests.outcomes import few_words
from gridstat.broker.requests.pending_grants import PendingGrants
from gridstat.broker.requests.publication_changes import PublicationChanges
from gridstat.broker.requests.publications import Publications
from gridstat.broker.requests.queries import Queries
from gridstat.broker.requests.request_capabilities import (
    contracts_capability,
    publications_capability,
)
from gridstat.broker.requests.request_intake import RequestIntake
from gridstat.broker.requests.room_requests import RoomRequests
from gridstat.broker.requests.subscriptions import Subscriptions
from gridstat.broker.routers.path_moves import PathMoves
from gridstat.broker.routers.router_health import RouterHealth
from gridstat.broker.routers.router_sessions import RouterSessions
from gridstat.broker.routers.routers_capability import routers_capability
from gridstat.broker.routers.row_refusals import RowRefusals
from gridstat.broker.segments.parent_dispatcher import ParentDispatcher
from gridstat.broker.segments.parent_session import ParentSession
from gridstat.broker.tables.channel_plan import ChannelPlan
from gridstat.broker.tables.router_tables import RouterTables
from gridstat.model.cloud import is_legal
from gridstat.model.errors import NotAuthorised
from gridstat.net.command.machine import (
    Connected,
    Disconnected,
    Persisted,
    PersistFailed,
    Received,
    TimerFired,
)
from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.broker.operators.survey import ReportedLedger
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.settings import BrokerSettings
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.net.command.machine import Event, Instruction

START_TIMER: Final = "start"
EARLY_EVENTS_MAX: Final = 100_000


class LeafBroker:
    """Machine that sends no message before the decision behind it, and its term, are durable.

    `restore` is called before the first event, with the operations of the journal.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        outside: Outside,
        *,
        routers: Iterable[Router],
        channels: Iterable[EventChannel],
        resources: Resources | None = None,
    ) -> None:
        self._early: list[Event] | None = []
        self._has_begun = False
        self._term_restored = 0
        self.registry = Registry(settings.cloud)
        self.tables = RouterTables()
        self.reservations = Reservations(Allocator(resources or Resources(probes=settings.probes)))
        self._routers = {router.name: router for router in routers}
        self._channels = {int(channel.channel_id): channel for channel in channels}
        self._capabilities = LeafCapabilities()
        self._context = BrokerContext(
            settings,
            outside,
            self.registry,
            self.reservations,
            self.tables,
            Effects(self._capabilities),
            self._capabilities,
        )
        channel_plan = ChannelPlan(self.registry, self.tables, settings.probes)
        notices = Notices(self._context)
        self._compose_sessions(notices, channel_plan)
        self._compose_contracts(notices)
        self._compose_commands(notices, channel_plan)
        floods = self._compose_access(notices)
        self._capabilities.register(self._list_capabilities(channel_plan, floods))
        self._add_configured()

    def _compose_sessions(self, notices: Notices, channel_plan: ChannelPlan) -> None:
        """Create the parts that follow routers and end-points."""
        context = self._context
        self._moves = PathMoves(context)
        self._router_sessions = RouterSessions(context)
        self._health = RouterHealth(context)
        self._presence = EndPointPresence(context, notices)
        self._requests = RequestIntake(context, self._presence)
        self._attachments = EndPointAttachments(
            context, self._requests, notices, channel_plan, self._presence
        )

    def _compose_contracts(self, notices: Notices) -> None:
        """Create the parts that grant, move and repair contracts, here and across clouds."""
        context = self._context
        refusals = RowRefusals(context)
        replacement = PathReplacement(context, self._health, refusals)
        self._contract_notices = ContractNotices(context, notices, replacement)
        self._grants = PendingGrants(
            context, self._requests, notices, self._contract_notices, self._moves, replacement
        )
        session = ParentSession(context)
        self._bands = BandedContracts(
            context, self._moves, notices, self._contract_notices, RoomRequests(context, session)
        )
        self._tree = ParentDispatcher(
            context,
            session,
            self._bands,
            self._health,
            self._requests,
            self._grants,
            notices,
        )
        self._recovery = Recovery(
            context,
            self._health,
            self._contract_notices,
            self._moves,
            self._presence,
            refusals,
            replacement,
            self._tree,
            self._router_sessions,
        )
        self._placement = Placement(context, notices, self._contract_notices, self._tree)

    def _compose_commands(self, notices: Notices, channel_plan: ChannelPlan) -> None:
        """Create the parts that decide the commands of end-points and operators."""
        context = self._context
        surveyor = Surveyor(context, self._router_sessions, self._health, channel_plan)
        self._operator_commands = OperatorCommands(context, surveyor, self._health)
        self._subscriptions = Subscriptions(
            context, self._requests, self._grants, self._tree.contracts, self._bands
        )
        self._contract_changes = ContractChanges(
            context, self._requests, self._moves, self._tree.contracts, self._bands
        )
        self._publication_changes = PublicationChanges(
            context, self._requests, self._contract_notices, self._tree.identifiers.take
        )
        self._publications = Publications(
            context,
            self._requests,
            notices,
            self._grants,
            self._subscriptions,
            self._tree.identifiers,
        )
        self._queries = Queries(context, self._requests, self._recovery, self._tree.contracts)
        self._commands = CommandDispatcher(
            context,
            self._requests,
            self._grants,
            self._tree.contracts.answers.joins,
            self._tree.contracts.report_changes,
        )

    def _compose_access(self, notices: Notices) -> LeafFloods:
        """Create the floods, and the access rules, on which floods and contracts rest."""
        context = self._context
        floods = LeafFloods(context, self._tree.session, self._requests)
        self._access = LeafAccess(
            context,
            notices,
            self._subscriptions.matching,
            self._tree,
            floods.listeners,
            self._grants,
        )
        self.access = self._access.records
        self.permissions = context.permissions
        return floods

    def _list_capabilities(
        self, channel_plan: ChannelPlan, floods: LeafFloods
    ) -> tuple[LeafCapability, ...]:
        """Return all capabilities of a leaf broker, in the order in which they act.

        A snapshot is replayed in this order, so each capability needs the state of those before it
        at most. A start resumes them, and a router's report reaches them, in the same order.
        """
        context = self._context
        state = self.registry, self.reservations, self.tables, channel_plan
        cloud = CloudEffects(*state, context.effects.apply)
        registrations = RegistrationEffects(*state)
        tree = TreeEffects(self.registry, channel_plan)
        keys = LeafKeys(context, self._tree.session, channel_plan, self._recovery)
        self.floods = floods.records
        return (
            LeafCapability(name="term", timers={START_TIMER: self._begin}),
            self._operator_commands.capability(cloud, self._routers, self._channels),
            self._tree.position_capability(tree),
            routers_capability(context, cloud, self._router_sessions, self._health, self._recovery),
            self._attachments.capability(registrations),
            self._recovery.capability(),
            self._placement.capability(),
            publications_capability(
                context,
                registrations,
                self._publications,
                self._publication_changes,
                self._queries,
            ),
            contracts_capability(
                context,
                self._subscriptions,
                self._contract_changes,
                self._grants,
                self._moves,
                self._queries,
            ),
            self._bands.capability(),
            self._tree.capability(tree),
            floods.capability(),
            keys.capability(),
            self._access.capability(),
            self._commands.capability(registrations),
        )

    def restore(self, written: Sequence[bytes]) -> None:
        """Replay operations of the journal; a further part of it may follow in a further call."""
        assert not self._has_begun, "a broker is restored before it starts"
        for operation in self._context.effects.decode(after_mark(written)):
            self._context.effects.replay(operation)
        self._context.restored(len(written))
        # The news were reported before the restart; `resume` finds what is still open.
        self.registry.tree.news.take()

    @property
    def operation_types(self) -> tuple[type[Operation], ...]:
        """Operations that the journal of this broker may hold."""
        return tuple(self._capabilities.operations)

    def decode(self, data: bytes) -> Operation:
        """Decode an operation of this broker's journal."""
        (operation,) = self._context.effects.decode((data,))
        return operation

    def snapshot(self) -> list[bytes]:
        """Return the state as operations, including decisions that are not durable yet."""
        return [encode(operation) for operation in self._capabilities.snapshot()]

    def survey(self) -> dict[str, Any]:
        """Return the survey of the cloud that operators can request, for metrics."""
        return self._capabilities.survey()

    def ledgers(self) -> list[ReportedLedger]:
        """Return the ledgers of all subscribers, of which a survey lists only the first."""
        return self._operator_commands.ledgers()

    def start(self, now_ns: int) -> list[Instruction]:
        """Begin a new term; the first event does so too."""
        self._context.begin_turn(now_ns)
        self._begin()
        return self._context.end_turn()

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        self._context.begin_turn(now_ns)
        if not self._has_begun:
            self._begin()
        # Peers must not learn a term that the journal may lose, so their events wait for it.
        if self._early is not None and isinstance(event, Connected | Disconnected | Received):
            if len(self._early) < EARLY_EVENTS_MAX:
                self._early.append(event)
            return self._context.end_turn()
        self._handle_event(event)
        self._capabilities.turn_ended()
        self._context.compact_if_due(
            self._context.settings.snapshot_after, self._capabilities.snapshot
        )
        return self._context.end_turn()

    def _add_configured(self) -> None:
        """Add the routers and channels of the broker's configuration file."""
        for router in self._routers.values():
            self.registry.add_router(router)
            self.reservations.add_router(router)
        for channel in self._channels.values():
            self.registry.add_channel(channel)
            self.reservations.add_channel(channel)

    # Start.

    def _begin(self) -> None:
        """Raise the term, durably, before this broker sends any message."""
        if not self._has_begun:
            self._term_restored = self.registry.term  # Writes that fail do not take a term back.
        self._has_begun = True
        before = self._term_restored
        term = max(self.registry.term + 1, self._context.settings.term_min)
        raised: list[Operation] = []
        lost = 0, 0
        if self._context.settings.term_min > before + 1:
            self._context.note("term_raised", before=before, term=term)
            has_joined = self.registry.tree.depth is not None
            has_parent = bool(self._context.settings.parent) or has_joined
            lost = before + 1, term
            raised = [numbers_from(term, has_parent=has_parent)]
        journal = "" if self._context.has_journal else self._context.outside.new_identity()
        orphaned = [] if self._context.settings.parent else self._capabilities.orphaned()
        self._context.commit(
            [
                TermBegan(term=term, journal=journal, lost_from=lost[0], lost_to=lost[1]),
                *raised,
                *orphaned,
                *self._access.first_operations(),
            ],
            self._term_began,
            self._begin_later,
        )

    def _begin_later(self, _: str) -> None:
        self._context.set_timer(START_TIMER, self._context.settings.retry_after_ns)

    def _term_began(self, _: Applied) -> None:
        early, self._early = self._early or [], None
        self._context.note("term_began", term=self.registry.term)
        self._warn_of_names()
        # Timers are lost with the process: each part sets its own again from the journal's state.
        self._capabilities.resume()
        for event in early:
            self._handle_event(event)

    def _warn_of_names(self) -> None:
        """Report names of an older release's journal that could not be registered any more."""
        registry = self.registry
        kinds = (registry.publications, registry.endpoints, registry.routers)
        names = sorted(name for kind in kinds for name in kind if not is_legal(name))
        if names:
            self._context.warn(
                "names_not_legal",
                count=len(names),
                names=", ".join(few_words(names)),
                hint="they work as before; give new names when you can",
            )

    # Events.

    def _handle_event(self, event: Event) -> None:
        match event:
            case Received(peer=peer):
                self._receive(peer, event)
            case Persisted(token=token):
                self._context.persisted(token)
                self._capabilities.persisted()
            case PersistFailed(token=token, reason=reason):
                self._context.persist_failed(token, reason)
                self._capabilities.rolled_back()
            case TimerFired(name=name):
                self._capabilities.fire_timer(name)
            case Connected(peer=peer):
                self._connect(peer, event)
            case Disconnected(peer=peer):
                role, _, name = peer.partition("/")
                if role == "router":
                    self._router_sessions.disconnect(name)
                elif self._tree.is_parent(peer):
                    self._tree.session.disconnect()

    def _connect(self, peer: str, event: Connected) -> None:
        role, _, name = peer.partition("/")
        if role == "router":
            self._router_sessions.connect(name, event.hello)
        elif self._tree.is_parent(peer):
            self._tree.session.connect()
        elif role != "operator":
            error = NotAuthorised(
                f"rule role: a {role} may not connect to a broker; end-points connect to an edge"
            )
            self._context.close(peer, error)

    def _receive(self, peer: str, event: Received) -> None:
        role, _, name = peer.partition("/")
        message = event.message
        if role == "router":
            self._receive_from_router(name, event)
        elif self._tree.is_parent(peer) and self._tree.take(message):
            return
        elif role == "operator" and isinstance(message, OperatorCommand | TreeCommand):
            self._operator_commands.take(peer, message)
        else:
            self._refuse(peer, event)

    def _receive_from_router(self, name: str, event: Received) -> None:
        handlers = self._capabilities.router_messages.get(type(event.message))
        if handlers is None:
            self._refuse(event.peer, event)
            return
        for handle in handlers:
            handle(name, event.message)

    def _refuse(self, peer: str, event: Received) -> None:
        message = type(event.message).__name__
        self._context.close(
            peer, NotAuthorised(f"rule role: {peer} may not send {message} to a broker")
        )
