"""Leaf broker of one cloud: a pure machine that admits, journals, orders routers and recovers.

Start reading at `handle`, which takes one event and returns instructions. A request passes
`request_intake.py` (signature, replay), `subscriptions.py` or a neighbour of it (decision),
`context.py` (journal) and `router_tables.py` (orders and their confirmation), and returns as an
answer. Failures are handled in `recovery.py`.

Peers and their messages:

- `router/NAME`: `ReportRouter` begins a session. `Forward` carries requests of end-points,
  `TableChanged` and `TableRefused` answer orders, and `AttachmentChanged`, `ChannelStateChanged`,
  `BackPressureChanged` and `ReportCounters` report states.
- `operator/NAME`: the commands of `operators/operator_commands.py`.
- `broker/NAME`, if it is the parent: the messages of `segments/parent_dispatcher.py`.

Restart: `restore` replays the journal. Then `TermBegan` is written, and events that arrive before
it is durable are kept in `_early`. Once the term is durable every part resumes, and routers are
sent what they lack when they report. A failed write of the term is tried again by a timer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.capacity.allocator import Allocator
from gridstat.broker.capacity.resources import Resources
from gridstat.broker.context import (
    CONFIRM_TIMER,
    FLUSH_TIMER,
    REPORTS_TIMER,
    BrokerContext,
    Outside,
)
from gridstat.broker.effects.effects import Effects
from gridstat.broker.effects.reservations import Reservations
from gridstat.broker.floods.flood_listeners import FloodListeners
from gridstat.broker.floods.leaf_flooding import LeafFlooding
from gridstat.broker.operators.operator_commands import OperatorCommands
from gridstat.broker.operators.survey import Surveyor
from gridstat.broker.path_replacement import PathReplacement
from gridstat.broker.placement import PLACEMENT_TIMER, Placement
from gridstat.broker.records.operations import TermBegan, encode, since_snapshot
from gridstat.broker.records.registry import Registry
from gridstat.broker.records.snapshot import snapshot_operations
from gridstat.broker.recovery import REPLAN_TIMER, Recovery
from gridstat.broker.requests.command_dispatcher import CommandDispatcher
from gridstat.broker.requests.contract_changes import ContractChanges
from gridstat.broker.requests.endpoint_attachments import DORMANT_TIMER, EndPointAttachments
from gridstat.broker.requests.endpoint_presence import (
    AWAY_TIMER,
    GRACE_TIMER,
    SETTLED_TIMER,
    EndPointPresence,
)
from gridstat.broker.requests.notices import Notices
from gridstat.broker.requests.pattern_matching import MATCH_TIMER
from gridstat.broker.requests.pending_grants import GRANT_RETRY_TIMER, PendingGrants
from gridstat.broker.requests.publication_changes import CHANGE_TIMER, PublicationChanges
from gridstat.broker.requests.publications import Publications
from gridstat.broker.requests.queries import Queries
from gridstat.broker.requests.request_intake import RepeatedSubscribe, RequestIntake
from gridstat.broker.requests.subscriptions import Subscriptions
from gridstat.broker.routers.path_moves import RETIRE_TIMER, PathMoves
from gridstat.broker.routers.router_health import ABSENT_TIMER, RouterHealth
from gridstat.broker.routers.router_sessions import WHOLE_TIMER, RouterSessions
from gridstat.broker.routers.row_refusals import REFUSAL_TIMER, RowRefusals
from gridstat.broker.segments.leaf_borders import ABSTRACT_LINKS_TIMER, SEARCH_TIMER
from gridstat.broker.segments.leaf_identifiers import NUMBERS_TIMER
from gridstat.broker.segments.parent_dispatcher import ParentDispatcher
from gridstat.broker.segments.parent_session import ParentSession
from gridstat.broker.segments.pending_answers import ANSWER_TIMER
from gridstat.broker.segments.remote_contracts import REQUEST_TIMER
from gridstat.broker.segments.segment_reservations import RELEASE_TIMER
from gridstat.broker.tables.channel_plan import ChannelPlan
from gridstat.broker.tables.router_tables import RouterTables
from gridstat.model.errors import GridStatError, NotAuthorised, Refused
from gridstat.net.command.machine import (
    Connected,
    Disconnected,
    Persisted,
    PersistFailed,
    Received,
    TimerFired,
)
from gridstat.net.command.operator_messages import OperatorCommand
from gridstat.net.command.router_messages import (
    AttachmentChanged,
    BackPressureChanged,
    ChannelStateChanged,
    Forward,
    ReportCounters,
    ReportRouter,
    TableChanged,
    TableRefused,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from gridstat.broker.operators.survey import ReportedLedger
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.settings import BrokerSettings
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.model.status import StatusVariable
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
        self.registry = Registry(settings.cloud)
        self.tables = RouterTables()
        self.reservations = Reservations(Allocator(resources or Resources(probes=settings.probes)))
        channel_plan = ChannelPlan(self.registry, self.tables, settings.probes)
        effects = Effects(
            self.registry, self.reservations, self.tables, channel_plan, self._flooding_ended
        )
        self._context = BrokerContext(
            settings, outside, self.registry, self.reservations, self.tables, effects
        )
        notices = Notices(self._context)
        self._compose_sessions(notices, channel_plan)
        self._compose_contracts(notices)
        self._compose_commands(notices, channel_plan)
        self._set_up_timers()
        self._add_configured(routers, channels)

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
        self._grants = PendingGrants(context, self._requests, notices, self._moves, replacement)
        parent = ParentSession(context)
        self.flooding = LeafFlooding(context, parent)
        self._tree = ParentDispatcher(
            context,
            parent,
            self._health,
            self._requests,
            self._grants,
            notices,
            self.flooding.parent_handlers(),
        )
        self._recovery = Recovery(
            context,
            self._health,
            notices,
            self._moves,
            self._presence,
            refusals,
            replacement,
            self._tree,
        )
        self._placement = Placement(context, notices, self._tree)

    def _compose_commands(self, notices: Notices, channel_plan: ChannelPlan) -> None:
        """Create the parts that decide the commands of end-points and operators."""
        context = self._context
        surveyor = Surveyor(context, self._router_sessions, self._health, channel_plan)
        self._operator_commands = OperatorCommands(context, surveyor, self._health, self.flooding)
        self._subscriptions = Subscriptions(
            context, self._requests, self._grants, self._tree.contracts
        )
        self._publication_changes = PublicationChanges(
            context, self._requests, notices, self._tree.identifiers.take
        )
        self._publications = Publications(
            context,
            self._requests,
            notices,
            self._grants,
            self._subscriptions,
            self._tree.identifiers,
        )
        self._commands = CommandDispatcher(
            self._attachments,
            self._subscriptions,
            ContractChanges(context, self._requests, self._moves, self._tree.contracts),
            self._publications,
            self._publication_changes,
            Queries(context, self._requests, self._recovery, self._tree.contracts),
            FloodListeners(context, self._requests),
            self._tree.contracts.answers.joins,
        )

    def _set_up_timers(self) -> None:
        """Register the handlers of timers: by name, or by the part of the name up to its slash."""
        self._fixed_timers: dict[str, Callable[[], None]] = {
            FLUSH_TIMER: self._context.flush,
            CONFIRM_TIMER: self._context.expire_confirmations,
            REPORTS_TIMER: self._context.save_reports,
            RETIRE_TIMER: self._moves.retire_due,
            REPLAN_TIMER: self._recovery.continue_replanning,
            REFUSAL_TIMER: self._recovery.refusals_expired,
            PLACEMENT_TIMER: self._placement.try_again,
            MATCH_TIMER: self._subscriptions.matching.match_next,
            GRANT_RETRY_TIMER: self._grants.retry,
            REQUEST_TIMER: self._tree.contracts.request_all,
            ANSWER_TIMER: self._tree.contracts.deadlines.expire,
            RELEASE_TIMER: self._tree.segments.release_due,
            NUMBERS_TIMER: self._tree.identifiers.request_again,
            ABSTRACT_LINKS_TIMER: self._tree.borders.check_abstract_links,
            SEARCH_TIMER: self._tree.borders.continue_search,
            START_TIMER: self._begin,
        }
        self._named_timers: dict[str, Callable[[str], None]] = {
            GRACE_TIMER: self._attachments.grace_ended,
            DORMANT_TIMER: self._attachments.dormancy_ended,
            AWAY_TIMER: self._presence.edge_is_absent,
            SETTLED_TIMER: self._recovery.endpoint_moved,
            WHOLE_TIMER: self._router_sessions.send_whole_again,
            CHANGE_TIMER: self._publication_changes.retire_old,
            ABSENT_TIMER: self._recovery.router_is_absent,
        }

    def restore(self, written: Sequence[bytes]) -> None:
        """Replay operations of the journal; a further part of it may follow in a further call."""
        assert not self._has_begun, "a broker is restored before it starts"
        for operation in since_snapshot(written):
            self._context.effects.replay(operation)
        self._context.restored(len(written))
        # The news were reported before the restart; `resume` finds what is still open.
        self.registry.tree.news.take()

    def snapshot(self) -> list[bytes]:
        """Return the state as operations, including decisions that are not durable yet."""
        return [encode(operation) for operation in self._operations()]

    def survey(self) -> dict[str, Any]:
        """Return the survey of the cloud that operators can request, for metrics."""
        return self._operator_commands.survey()

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
        # News for the parent are collected during the turn and sent once, in a fixed order.
        self._tree.end_turn()
        self._context.compact_if_due(self._context.settings.snapshot_after, self._operations)
        return self._context.end_turn()

    def _add_configured(self, routers: Iterable[Router], channels: Iterable[EventChannel]) -> None:
        """Add the routers and channels of the broker's configuration file."""
        self._routers = {router.name: router for router in routers}
        self._channels = {int(channel.channel_id): channel for channel in channels}
        for router in self._routers.values():
            self.registry.add_router(router)
            self.reservations.add_router(router)
        for channel in self._channels.values():
            self.registry.add_channel(channel)
            self.reservations.add_channel(channel)

    # Start.

    def _begin(self) -> None:
        """Raise the term, durably, before this broker sends any message."""
        self._has_begun = True
        before = self.registry.term
        term = max(before + 1, self._context.settings.term_min)
        if term > before + 1:
            self._context.note("term_raised", before=before, term=term)
        journal = "" if self._context.has_journal else self._context.outside.new_identity()
        self._context.commit(
            [TermBegan(term=term, journal=journal), *self.flooding.orphaned()],
            self._term_began,
            self._begin_later,
        )

    def _begin_later(self, _: str) -> None:
        self._context.set_timer(START_TIMER, self._context.settings.retry_after_ns)

    def _term_began(self, _: Applied) -> None:
        early, self._early = self._early or [], None
        self._context.note("term_began", term=self.registry.term)
        # Timers are lost with the process: each part sets its own again from the journal's state.
        self._operator_commands.begin()
        self._health.resume()
        self._attachments.resume()
        self._placement.resume()
        self._publication_changes.resume()
        self._moves.resume()
        self._subscriptions.matching.schedule()
        self._tree.resume()
        for event in early:
            self._handle_event(event)

    def _operations(self) -> Iterator[Operation]:
        return snapshot_operations(self.registry, self._routers, self._channels)

    def _flooding_ended(self, variable: StatusVariable) -> None:
        """Forward the end of a flooded variable; effects exist before the part that reports it."""
        self.flooding.ended(variable)

    # Events.

    def _handle_event(self, event: Event) -> None:
        match event:
            case Received(peer=peer):
                self._receive(peer, event)
            case Persisted(token=token):
                self._context.persisted(token)
                self._tree.borders.schedule_search()
            case PersistFailed(token=token, reason=reason):
                self._context.persist_failed(token, reason)
                # The rollback may restore attachments whose sessions were lost meanwhile.
                self._presence.rolled_back()
            case TimerFired(name=name):
                self._fire_timer(name)
            case Connected(peer=peer):
                self._connect(peer, event)
            case Disconnected(peer=peer):
                role, _, name = peer.partition("/")
                if role == "router" and self._router_sessions.disconnect(name):
                    self._presence.edge_lost(name)
                    self._recovery.session_changed(name, is_connected=False)
                    self._tree.routers_changed()
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
        elif role == "operator" and isinstance(message, OperatorCommand):
            self._operator_commands.take(peer, message)
        else:
            self._refuse(peer, event)

    def _receive_from_router(self, name: str, event: Received) -> None:
        message = event.message
        match message:
            case Forward():
                self._decide(name, message)
            case TableChanged():
                refused = self._router_sessions.take_confirmation(name, message)
                self._recovery.rows_refused(name, refused)
            case TableRefused():
                is_over = self._router_sessions.take_refusal(name, message)
                self._recovery.table_refused(name, is_over=is_over)
            case ReportRouter():
                is_new = self._router_sessions.report(name, message)
                # None: the router is not of this cloud, or its report is not accepted.
                if is_new is not None:
                    self._recovery.router_reported(name, is_new=is_new)
                    self._presence.edge_reported(name, message.attached, is_new=is_new)
                    self._recovery.session_changed(name, is_connected=True)
                    self._placement.try_again()
                    self._tree.router_reported(name, is_new=is_new)
            case AttachmentChanged():
                if message.is_up:
                    self._presence.session_found(name, message.endpoint)
                else:
                    self._presence.session_lost(name, message.endpoint)
            case ChannelStateChanged():
                self._recovery.channel_changed(name, message)
                self._tree.channel_changed(name, message)
            case BackPressureChanged():
                self._recovery.back_pressure_changed(name, message)
                self._tree.borders.back_pressure_changed(name, message)
            case ReportCounters():
                self._router_sessions.counters[name] = message
            case _:
                self._refuse(event.peer, event)

    def _refuse(self, peer: str, event: Received) -> None:
        message = type(event.message).__name__
        self._context.close(
            peer, NotAuthorised(f"rule role: {peer} may not send {message} to a broker")
        )

    # Requests of end-points.

    def _decide(self, edge: str, forward: Forward) -> None:
        if not self._router_sessions.is_connected(edge):
            return  # The edge forwards the request again once it has reported.
        try:
            opened = self._requests.open(edge, forward)
            if isinstance(opened, RepeatedSubscribe):
                self._grants.repeat(opened.request, opened.answer)
                return
        except Exception as error:  # One request must not stop the service of the others.
            self._context.note("request_failed", endpoint=forward.endpoint[:80], error=repr(error))
            self._requests.refuse_unreadable(edge, forward)
            return
        if opened is None:
            return
        request = opened.request
        try:
            self._commands.dispatch(edge, request, opened.command, opened.facts)
        except GridStatError as error:
            self._requests.refuse(request, error)
        except Exception as error:  # As above; the note is for developers.
            self._context.note("request_failed", endpoint=request.endpoint, error=repr(error))
            self._context.abandon()
            hint = "report this to the operator of the broker: its log has request_failed"
            failed = Refused("the broker failed over this request", hint=hint)
            self._requests.refuse(request, failed)

    def _fire_timer(self, timer: str) -> None:
        fixed = self._fixed_timers.get(timer)
        if fixed is not None:
            fixed()
            return
        kind, _, about = timer.partition("/")
        named = self._named_timers.get(f"{kind}/")
        if named is not None:
            named(about)
