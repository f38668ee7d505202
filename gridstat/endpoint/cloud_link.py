"""The parts behind a connection: session thread, receiver, delivery and senders."""

from __future__ import annotations

import logging
import random
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar
from uuid import uuid4

from gridstat.core import _ends
from gridstat.core.scheduling import END_POINT_PRIORITY, in_real_time
from gridstat.endpoint.address_prover import POLL_S, AddressProver
from gridstat.endpoint.address_verdicts import AddressVerdicts
from gridstat.endpoint.change import CODE_PURGED
from gridstat.endpoint.change_notifier import ChangeNotifier
from gridstat.endpoint.deliverer import Deliverer
from gridstat.endpoint.end_keys import EndKeys
from gridstat.endpoint.endpoint_session import EndPointSession
from gridstat.endpoint.expected_variables import ExpectedVariables
from gridstat.endpoint.flooded import FloodedSubscription
from gridstat.endpoint.options import refusal
from gridstat.endpoint.outgoing_channels import OutgoingChannels
from gridstat.endpoint.publication_registry import PublicationRegistry
from gridstat.endpoint.session_events import (
    AddressAsked,
    AddressJudged,
    AttachRefused,
    CopiesReported,
    EdgeAttached,
    EdgeLost,
    EndPoint,
    NoticeReceived,
    PublicationRestored,
    RegistrationsLost,
    SeedReceived,
    SubscriptionRestored,
)
from gridstat.endpoint.session_thread import SessionThread
from gridstat.endpoint.subscription_registry import SubscriptionRegistry
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.errors import (
    CertificateRefused,
    DeadlinePassed,
    EndPointExists,
    GridStatError,
    LinkDown,
    Misuse,
    NotAuthorised,
    SecurityNotSatisfiable,
    WrongCloud,
)
from gridstat.net.clock import SystemClock
from gridstat.net.command.endpoint_messages import (
    AddressRefused,
    Detach,
    EventsPoliced,
    Unpublished,
)
from gridstat.net.core_dumps import forbid_core_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.change import OnChange
    from gridstat.endpoint.change_stream import ChangeFollowers
    from gridstat.endpoint.edge_address import EdgeAddress
    from gridstat.endpoint.flooded import FloodedEvent
    from gridstat.endpoint.session_events import SessionOutput
    from gridstat.endpoint.tap import Tap
    from gridstat.model.channel_security import Security
    from gridstat.net.command.endpoint_messages import AttachedOutcome, EndPointCommand, Outcome
    from gridstat.net.command.router_messages import SeedAccepted
    from gridstat.net.command.tls import Credentials

Result = TypeVar("Result")
log = logging.getLogger(__name__)
NS_PER_S: Final = 1_000_000_000
LEDGER_EVERY_NS: Final = 5 * NS_PER_S
LEAVE_WITHIN_S: Final = 2.0
SECOND_EDGE_S: Final = 2.0
"""Longest wait of a new connection for its second edge: contracts need both for two paths."""
OTHER_PROCESS_S: Final = 5.0
"""Time for which a process that has just died keeps its name, until its session is found silent."""
CHECK_EVERY_S: Final = 0.1
PERMANENT_FAILURES: Final = (
    CertificateRefused,
    NotAuthorised,
    SecurityNotSatisfiable,
    WrongCloud,
)
DATAGRAM_VERSIONS: Final = (1, 2, 3)


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """Timeout of requests, and capacity of the receiver."""

    within_s: float = 10.0
    ring_events: int = 65_536
    option_bytes: int = 1 << 20
    variables_max: int = 131_072
    fifo_priority: int | None = None
    """Priority of the receiving thread; None: the usual one, where the process may have it."""
    on_change: OnChange | None = None
    """Called with every change of edges, subscriptions and publications."""
    security: Security = HOP
    """Whether the channels to and from the edges are sealed."""
    core_dumps: bool = False
    """Whether the process, with the keys in its memory, may be dumped and debugged."""


class CloudLink:
    """Runs from `open` to `close`; the registries of publications and subscriptions work in
    between. `hosts` are the addresses of this machine from which the edges are reached."""

    def __init__(
        self,
        credentials: Credentials,
        edges: tuple[EdgeAddress, ...],
        hosts: tuple[str, ...],
        settings: LinkSettings,
    ) -> None:
        self.name = credentials.identity.name
        self._edges = edges
        self._settings = settings
        self._clock = SystemClock()
        self._host = _bind_host(hosts)
        self._flooded: FloodedSubscription | None = None
        self._receiver = _ends.Receiver(
            host=self._host,
            ring_events=settings.ring_events,
            option_bytes=settings.option_bytes,
            variables_max=settings.variables_max,
            only_sources=True,
        )
        self._sources: dict[str, int] = {}
        self._keys = EndKeys(self._answer_seed, clock_ns=self._clock.steady_ns)
        self._prover = AddressProver(self._keys.newest_counter, clock_ns=self._clock.steady_ns)
        self._channels = OutgoingChannels(keys=self._keys)
        self.deliverer = Deliverer(self._receiver, self._clock)
        self.notifier = ChangeNotifier(self.deliverer.post, self._clock, settings.on_change)
        self._expected = ExpectedVariables(self._receiver, self.deliverer, self._clock)
        self.subscriptions = SubscriptionRegistry(
            self, self._expected, self.deliverer, self._clock, self.notifier
        )
        self.publications = PublicationRegistry(self, self._channels, self.notifier)
        self._session = SessionThread(self._machine(credentials, hosts), credentials, self)
        self._state = threading.Condition()
        self._attached: set[str] = set()
        self._sealed_sources: dict[str, int] = {}
        self._verdicts = AddressVerdicts()
        self._was_attached = False
        self._failures: dict[str, GridStatError] = {}
        self._closing = threading.Lock()
        self.is_over = False

    def _machine(self, credentials: Credentials, hosts: tuple[str, ...]) -> EndPointSession:
        data_port, urgent_port = self._receiver.ports
        endpoint = EndPoint(
            name=self.name,
            edges=tuple(edge.name for edge in self._edges),
            certificate=credentials.certificate,
            incarnation=uuid4().hex,
            first_request_id=self._clock.posix_ns(),
            hosts=hosts,
            data_port=data_port,
            urgent_port=urgent_port,
            datagram_versions=DATAGRAM_VERSIONS,
            security=self._settings.security,
        )
        return EndPointSession(
            endpoint,
            credentials.key.sign,
            random.Random().random,
            renewed=lambda: (credentials.certificate, credentials.key.sign),
        )

    @property
    def attached_edges(self) -> tuple[str, ...]:
        """Edges to which the end-point is attached now, the preferred one first."""
        return tuple(edge.name for edge in self._edges if edge.name in self._attached)

    def open(self, timeout_s: float) -> None:
        """Start all threads and wait until the cloud accepts the end-point; raise why it does
        not."""
        try:
            if self._settings.security == HOP and not self._settings.core_dumps:
                forbid_core_dumps()
            with in_real_time(self._settings.fifo_priority, END_POINT_PRIORITY) as granted:
                self._receiver.start()
            log.info("receiving_thread scheduling=%r", str(granted))
            self.deliverer.start()
            self._session.start(self._edges)
            self._await_edges(time.monotonic() + timeout_s)
            self.deliverer.post(self._report_ledgers)
        except BaseException:
            self.close()
            raise

    def ask(
        self,
        command: EndPointCommand,
        use: Callable[[tuple[Outcome, ...], tuple[bytes, ...]], Result],
    ) -> Future[Result]:
        """Send a request to the cloud with the connection's own deadline."""
        return self._session.ask(command, use, self._settings.within_s)

    def subscribe_flooded(
        self, on_event: Callable[[FloodedEvent], object] | None
    ) -> FloodedSubscription:
        """Subscribe to all flooded events; one subscription at a time, because the cloud sends each
        event once."""
        if self._flooded is not None and not self._flooded.is_over:
            raise Misuse(
                "all flooded events are subscribed already", hint="end that subscription first"
            )
        keys = self._keys if self._settings.security == HOP else None
        self._flooded = FloodedSubscription(self, self._host, on_event, keys)
        return self._flooded

    def tap(self, tap: Tap) -> None:
        """Pass all events to a tap as well; before the first subscription."""
        self._expected.set_tap(tap)
        self.deliverer.tap(tap)

    def counters(self) -> dict[str, dict[str, int]]:
        """Return the counters of the senders by edge, and under `received` those of the
        receiver."""
        received = {**self._receiver.counters(), "dropped_unread": self.subscriptions.dropped}
        return {**self._channels.counters(), "received": received}

    def sources(self) -> dict[str, dict[str, int]]:
        """Return the state of the incoming channel by edge."""
        states = self._receiver.source_states()
        return {
            edge: states[channel_id]
            for edge, channel_id in sorted(self._sources.items())
            if channel_id in states
        }

    @property
    def is_unused(self) -> bool:
        """True if it has no publications and no subscriptions."""
        return self.subscriptions.is_empty and self.publications.is_empty

    def close(self, *, keep: bool = False) -> None:
        """Detach from the cloud if it is reachable, unless it is to keep what we have, and end all
        threads.

        An interrupt cuts the waiting short, not the work; what it leaves, a second call finishes.
        """
        if not self._closing.acquire(blocking=False):
            return  # Another thread closes it, and may wait for the callback that calls this.
        try:
            if not self.is_over:
                self._leave(keep=keep)
                self.is_over = True
        finally:
            self._closing.release()

    def _leave(self, *, keep: bool) -> None:
        with ExitStack() as parts:
            parts.callback(self._channels.close)
            parts.callback(self._receiver.close)
            parts.callback(self.deliverer.close)
            parts.callback(self._session.close)
            if self._flooded is not None:
                parts.callback(self._flooded.end)
            # The application closes the connection itself and needs no notice of it.
            self.notifier.followers.end()
            self.subscriptions.end()
            self.publications.end()
            if self._attached and not keep:
                with suppress(GridStatError):
                    self._session.ask(Detach(), lambda *_: None, LEAVE_WITHIN_S).result()

    # On the session's thread.

    def output_received(self, output: SessionOutput) -> None:
        """Handle an output of the session; one that fails ends no session."""
        try:
            self._handle(output)
        except GridStatError:
            log.exception("not_followed output=%s", type(output).__name__)

    def _handle(self, output: SessionOutput) -> None:
        match output:
            case EdgeAttached():
                self._handle_attached(output)
            case EdgeLost(edge=edge):
                self._channels.lose(edge)
                self._note_edge(edge, is_attached=False)
                self.notifier.edge_lost(edge, len(self.attached_edges), self._followers())
            case RegistrationsLost():
                self.publications.registrations_lost()
                self.subscriptions.registrations_lost()
            case AttachRefused(edge=edge, refused=refused):
                self.connection_failed(edge, refusal(refused))
            case CopiesReported(edge=edge, copies=copies):
                self._expected.note_copies(edge, copies)
            case NoticeReceived():
                self._handle_notice(output)
            case SeedReceived() | AddressAsked() | AddressJudged():
                self._handle_channel(output)
            case PublicationRestored():
                self.publications.restored(output)
            case SubscriptionRestored():
                self.subscriptions.restored(output)
            case _:
                raise AssertionError(f"answers do not come here: {output!r}")

    def _handle_attached(self, output: EdgeAttached) -> None:
        edge, outcome = output.edge, output.outcome
        log.info("attached edge=%s code=%d", edge, outcome.code)
        self._channels.open(edge, outcome)
        self._open_source(edge, outcome)
        self.subscriptions.set_modes(outcome.modes)
        is_first = not self._was_attached
        self._was_attached = True
        self._note_edge(edge, is_attached=True)
        if is_first and outcome.code == CODE_PURGED:
            self.notifier.earlier_process_purged(self.name)
        self.notifier.edge_attached(edge, len(self.attached_edges), outcome.code, self._followers())

    def _handle_notice(self, output: NoticeReceived) -> None:
        match output.notice:
            case EventsPoliced() as notice:
                self.publications.policed(notice)
            case Unpublished(subscription_id=0, name="**") as notice:
                if self._flooded is not None:
                    self._flooded.refused(notice.reason)
            case Unpublished(subscription_id=0) as notice:
                self.publications.withdrawn(notice)
            case notice:
                self.subscriptions.notice_received(notice, output.newest)

    def _followers(self) -> list[ChangeFollowers]:
        return [*self.subscriptions.followers(), *self.publications.followers()]

    def connection_failed(self, edge: str, error: GridStatError) -> None:
        """Note why the end-point is not attached to an edge; the session tries again."""
        with self._state:
            self._failures[edge] = error
            self._state.notify_all()

    def _note_edge(self, edge: str, *, is_attached: bool) -> None:
        with self._state:
            if is_attached:
                self._attached.add(edge)
                self._failures.pop(edge, None)
            else:
                self._attached.discard(edge)
            self._state.notify_all()

    def step(self) -> None:
        """Move the keys of all channels on, and try again what could not be opened."""
        if not self.is_over:
            self._keys.step()
            self._channels.retry()

    def _handle_channel(self, output: SeedReceived | AddressAsked | AddressJudged) -> None:
        match output:
            case SeedReceived(edge=edge, message=message):
                self._keys.take(edge, message)
            case AddressAsked(edge=edge, channel_id=channel_id):
                is_polled = self._prover.is_asked
                self._prover.ask(edge, channel_id)
                if not is_polled:
                    self._prove()
            case AddressJudged():
                self._handle_verdict(output)

    def _handle_verdict(self, output: AddressJudged) -> None:
        """Note whether an edge sends events to our address; notify the application of changes."""
        edge, verdict = output.edge, output.verdict
        with self._state:
            is_new = self._verdicts.note(edge, verdict)
            self._state.notify_all()
        if isinstance(verdict, AddressRefused):
            log.warning(
                "address_refused edge=%s channel_id=%d reason=%r hint=%r",
                edge,
                verdict.channel_id,
                verdict.reason,
                verdict.hint,
            )
            if is_new:
                self.notifier.address_refused(edge, verdict, self._followers())
        else:
            self.notifier.address_proved(edge, verdict.channel_id, self._followers())

    def _ready(self) -> int:
        """Return the number of edges that send events to us."""
        return sum(
            edge not in self._sealed_sources
            or self._verdicts.is_proved(edge, self._sealed_sources[edge])
            for edge in self._attached
        )

    def _refusals(self) -> dict[str, LinkDown]:
        """Return why attached edges send no events to our address."""
        found = {
            edge: self._verdicts.refusal(edge, channel_id)
            for edge, channel_id in self._sealed_sources.items()
            if edge in self._attached
        }
        return {edge: refused for edge, refused in found.items() if refused is not None}

    def _prove(self) -> None:
        """Answer the edges that ask for a counter; poll until all are answered."""
        for edge, proof in self._prover.step():
            self._session.answer_seed(edge, proof)
        if self._prover.is_asked and not self.is_over:
            self._session.call_later(POLL_S, self._prove)

    def _answer_seed(self, edge: str, accepted: SeedAccepted) -> None:
        self._session.answer_seed(edge, accepted)

    def _open_source(self, edge: str, outcome: AttachedOutcome) -> None:
        channel_id, is_sealed = outcome.down_channel_id, outcome.datagram_version == SEALED_VERSION
        before = self._sources.get(edge)
        if before != channel_id:
            if channel_id in self._sources.values():
                raise NotAuthorised(
                    f"edge router {edge} names the channel {channel_id} of another edge router",
                    hint="check this edge router",
                )
            if before is not None:
                self._keys.source_closed(before)
                self._receiver.close_source(before)
            self._receiver.open_source(channel_id, is_sealed)
            self._sealed_sources.pop(edge, None)
            if is_sealed:
                self._keys.source_opened(channel_id, self._receiver, edge)
                self._sealed_sources[edge] = channel_id
            self._sources[edge] = channel_id
            # Each edge keeps its index, also when it comes back.
            self._expected.source_indices.setdefault(edge, len(self._expected.source_indices))

    # On the application's thread.

    def _await_edges(self, deadline_s: float) -> None:
        """Wait for the first edge until the deadline, and for the second a little longer; raise the
        failure."""
        began_s = time.monotonic()
        with self._state:
            while not self._ready():
                self._raise_permanent_failure(time.monotonic() - began_s)
                self._raise_refused_address()
                if time.monotonic() >= deadline_s:
                    raise self._last_failure()
                self._state.wait(CHECK_EVERY_S)
            second_s = min(deadline_s, time.monotonic() + SECOND_EDGE_S)
            while self._ready() + len(self._refusals()) < len(self._edges):
                left_s = second_s - time.monotonic()
                is_refused = any(
                    isinstance(each, PERMANENT_FAILURES) for each in self._failures.values()
                )
                if left_s <= 0 or is_refused or not self._state.wait(left_s):
                    return

    def _raise_permanent_failure(self, waited_s: float) -> None:
        """Raise at once if no edge can become attached by waiting."""
        if len(self._failures) < len(self._edges):
            return
        for error in self._failures.values():
            is_taken = isinstance(error, EndPointExists) and waited_s >= OTHER_PROCESS_S
            if not isinstance(error, PERMANENT_FAILURES) and not is_taken:
                return
        raise self._last_failure()

    def _raise_refused_address(self) -> None:
        """Raise if no edge sends events to us, and at least one because of our address."""
        refused = self._refusals()
        if refused and len(refused.keys() | self._failures.keys()) >= len(self._edges):
            raise next(iter(refused.values()))

    def _last_failure(self) -> GridStatError:
        for refused in self._refusals().values():
            return refused
        for edge in self._edges:
            if edge.name in self._failures:
                return self._failures[edge.name]
        names = " and ".join(edge.name for edge in self._edges)
        if self._attached:
            return DeadlinePassed(
                f"{self.name} is attached to {' and '.join(self.attached_edges)}, but no datagram "
                "came that proves its address",
                hint="let UDP pass from the edge router to this end-point, or allow more time",
            )
        return DeadlinePassed(f"{self.name} could not attach to {names} in time")

    # On the delivering thread.

    def _report_ledgers(self) -> None:
        """Start the reports of ledgers, every few seconds."""
        report = _LedgerReport(self.subscriptions, self._clock.steady_ns())
        self.deliverer.watch(report)
        self.deliverer.reschedule(report)


class _LedgerReport:
    """Reports the ledgers of all contracts to the cloud, periodically."""

    def __init__(self, subscriptions: SubscriptionRegistry, now_ns: int) -> None:
        self._subscriptions = subscriptions
        self.next_due_ns: int | None = now_ns + LEDGER_EVERY_NS

    def fire(self, arrival: Arrival) -> None:
        self.next_due_ns = arrival.steady_ns + LEDGER_EVERY_NS
        self._subscriptions.report()


def _bind_host(hosts: tuple[str, ...]) -> str:
    """Return one address if all edges reach us there, else the address for all interfaces."""
    if len(set(hosts)) == 1:
        return hosts[0]
    return "::" if any(":" in host for host in hosts) else "0.0.0.0"
