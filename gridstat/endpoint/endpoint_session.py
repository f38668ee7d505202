"""The end-point's side of the command protocol, as a pure state machine: events in, instructions
out.

States of each edge: down, up (a session exists), attaching (`attach` is in flight), attached.
Requests go to any attached edge. A request is waiting, in flight, or abandoned
(`request_table.py`).

Messages sent: `Submit`, with a signed command and a growing request number. Messages received:
`Answer` with the outcomes of a request, and `Notify` with a notice of the cloud. A `ChannelSeed` of
an edge is passed on, and answered with `SeedAccepted` if the end-point receives on that channel. So
is its `AskAddress`, answered with `ProveAddress`, and its `AddressProved` or `AddressRefused`.

Timeout: an unanswered request is sent again, to the next attached edge, after a pause that doubles
with every try. At its deadline the application gets `Unanswered`; the request stays in flight,
abandoned, and a late grant is undone. Only the first attachment goes alone for a while: its answer
says whether the cloud still knows older registrations.

Loss of an edge: its requests are sent through another edge. Restart of an edge or of the broker:
the broker recognises a repeated request by its number. A broker that does not know the end-point at
one edge has decided nothing: the request goes through another edge, and that one is attached anew.
A cloud that does not know the end-point any more (`known_since` is newer) gets all registrations
again (`registrations.py`), and refused ones again later. Restart of the end-point: a new
incarnation with larger request numbers.

`session_thread.py` runs the machine with sockets, the simulator in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, assert_never

from gridstat.endpoint.registrations import Registrations
from gridstat.endpoint.request_table import Purpose, Request, RequestTable, give_back
from gridstat.endpoint.session_events import (
    AddressAsked,
    AddressJudged,
    Answered,
    AttachRefused,
    CopiesReported,
    EdgeAttached,
    EdgeLost,
    NoticeReceived,
    RegistrationsLost,
    Requested,
    SeedAnswered,
    SeedReceived,
    SessionEvent,
    SessionInstruction,
    SessionTimeouts,
)
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.errors import (
    LimitReached,
    MalformedFrame,
    NotAttached,
    SecurityNotSatisfiable,
)
from gridstat.net.command.endpoint_messages import (
    AddressProved,
    AddressRefused,
    Answer,
    AskAddress,
    Attach,
    AttachedOutcome,
    Notify,
    RefusedOutcome,
    Submit,
)
from gridstat.net.command.endpoint_signatures import signed_bytes
from gridstat.net.command.frames import decode_notice, decode_outcomes, encode_body
from gridstat.net.command.machine import (
    Connected,
    Disconnected,
    Note,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.router_messages import ChannelSeed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.endpoint.session_events import EndPoint
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.messages import Message

    Renewed: TypeAlias = Callable[[], tuple[bytes, Callable[[bytes], bytes]]]
    """Returns the present certificate, and the function that signs with its key."""

TICK: Final = "session/tick"
TICK_NS: Final = 100_000_000
"""Interval at which repetitions and deadlines are checked, while there are any."""
REPEATS_MAX: Final = 3


@dataclass(slots=True)
class _Edge:
    """One edge router as this machine sees it; `attach` is the attach request in flight."""

    name: str
    instance: str = ""
    is_up: bool = False
    is_attached: bool = False
    attach: Request | None = None

    @property
    def peer(self) -> str:
        return f"router/{self.name}"


class EndPointSession:
    """Keeps the end-point attached to as many of its edges as can be reached; every request is
    answered exactly once, by the cloud or by its deadline."""

    def __init__(
        self,
        endpoint: EndPoint,
        sign: Callable[[bytes], bytes],
        jitter: Callable[[], float],
        timeouts: SessionTimeouts | None = None,
        renewed: Renewed | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._sign = sign
        self._renewed = renewed
        self._jitter = jitter
        self._timeouts = timeouts or SessionTimeouts()
        self._edges = {f"router/{name}": _Edge(name) for name in endpoint.edges}
        self._requests = RequestTable(endpoint.first_request_id)
        self._registrations = Registrations()
        self._was_attached = False
        self._restoring = 0
        self._restore_tries = 0
        self._restore_at_ns: int | None = None
        self._is_ticking = False

    @property
    def is_restoring(self) -> bool:
        """True while registrations are requested again and not all are answered."""
        return self._restoring > 0

    @property
    def attached_edges(self) -> tuple[str, ...]:
        """Edges that accept requests now, the preferred one first."""
        return tuple(edge.name for edge in self._edges.values() if edge.is_attached)

    def handle(self, event: SessionEvent, now_ns: int) -> list[SessionInstruction]:
        """Return the instructions for an event: `session.handle(Connected(peer, hello),
        now_ns)`."""
        match event:
            case Connected():
                instructions = self._connected(event, now_ns)
            case Disconnected(peer=peer):
                instructions = self._disconnected(peer, now_ns)
            case Received(peer=peer, message=message):
                instructions = self._received(peer, message, now_ns)
            case TimerFired(name=name):
                instructions = self._ticked(now_ns) if name == TICK else []
            case Requested():
                instructions = self._requested(event, now_ns)
            case SeedAnswered(edge=name, accepted=accepted):
                # Without a session it is dropped: the next session brings another seed.
                instructions = [Send(f"router/{name}", accepted)]
            case _:
                assert_never(event)
        return [*instructions, *self._keep_ticking()]

    # Sessions.

    def _connected(self, event: Connected, now_ns: int) -> list[SessionInstruction]:
        edge = self._edges.get(event.peer)
        if edge is None:
            return []
        if edge.attach is not None and edge.instance != event.hello.instance:
            edge.attach = None  # The answer to another process would name wrong ports.
        edge.instance = event.hello.instance
        edge.is_up = True
        return self._attach(now_ns)

    def _disconnected(self, peer: str, now_ns: int) -> list[SessionInstruction]:
        edge = self._edges.get(peer)
        if edge is None or not edge.is_up:
            return []
        was_attached = edge.is_attached
        edge.is_up = edge.is_attached = False
        if edge.attach is not None:
            edge.attach.sent_to = ""
        for request in self._requests.in_flight():
            if request.sent_to == edge.name:
                self._requests.lose(request)
        instructions: list[SessionInstruction] = [EdgeLost(edge.name)] if was_attached else []
        return [*instructions, *self._attach(now_ns), *self._flush(now_ns)]

    def _attach(self, now_ns: int) -> list[SessionInstruction]:
        """Attach to every edge that is up; to one alone until the cloud has answered once, because
        an old request must not reach the broker after a newer one."""
        instructions: list[SessionInstruction] = []
        for edge in self._edges.values():
            if not edge.is_up or edge.is_attached:
                continue
            if edge.attach is None:
                if not self._was_attached and self._is_first_attach_pending(now_ns):
                    continue
                edge.attach = self._new_attach(edge, now_ns)
                instructions.append(self._submit(edge.attach, edge, now_ns))
            elif edge.attach.sent_to != edge.name:
                instructions.append(self._submit(edge.attach, edge, now_ns))
        return instructions

    def _is_first_attach_pending(self, now_ns: int) -> bool:
        """Return whether another edge's attachment is recent enough to wait for."""
        return any(
            edge.is_up
            and edge.attach is not None
            and edge.attach.deadline_ns is not None
            and now_ns < edge.attach.deadline_ns
            for edge in self._edges.values()
        )

    def _new_attach(self, edge: _Edge, now_ns: int) -> Request:
        endpoint = self._endpoint
        certificate = endpoint.certificate
        if self._renewed is not None:
            certificate, self._sign = self._renewed()
        command = Attach(
            edge=edge.name,
            certificate=certificate,
            incarnation=endpoint.incarnation,
            first_time=not self._was_attached,
            host=endpoint.hosts[endpoint.edges.index(edge.name)],
            data_port=endpoint.data_port,
            urgent_port=endpoint.urgent_port,
            datagram_versions=endpoint.datagram_versions,
            security=endpoint.security,
        )
        alone_until_ns = now_ns + self._timeouts.attach_lead_ns
        request = Request(command, Purpose.REQUESTED, deadline_ns=alone_until_ns)
        request.request_id = self._requests.next_id()
        return request

    # Requests and their answers.

    def _requested(self, request: Requested, now_ns: int) -> list[SessionInstruction]:
        if not self._requests.has_room:
            reason = f"{len(self._requests):,} requests wait for an answer already"
            full = RefusedOutcome(code=LimitReached.code, reason=reason)
            return [Answered(request.token, (full,))]
        self._registrations.requested(request.command)
        deadline_ns = now_ns + request.within_ns
        self._requests.add(Request(request.command, Purpose.REQUESTED, request.token, deadline_ns))
        return self._flush(now_ns)

    def _flush(self, now_ns: int) -> list[SessionInstruction]:
        """Send requests that are not in flight: first those that lost their edge, then waiting
        ones."""
        attached = [edge for edge in self._edges.values() if edge.is_attached]
        if not attached:
            return []
        return [
            self._submit(request, attached[request.tries % len(attached)], now_ns)
            for request in (*self._requests.take_lost(), *self._requests.begin())
        ]

    def _submit(self, request: Request, edge: _Edge, now_ns: int) -> Send:
        if not request.body:
            request.body = encode_body(request.command)
            signed = signed_bytes(self._endpoint.name, request.request_id, request.body)
            request.signature = self._sign(signed)
        request.sent_to = edge.name
        request.retry_at_ns = now_ns + self._pause_ns(request.tries)
        request.tries += 1
        message = Submit(
            request_id=request.request_id, body=request.body, signature=request.signature
        )
        return Send(edge.peer, message)

    def _pause_ns(self, tries: int) -> int:
        """Return the pause before a retry: doubled with every try, spread by a quarter, so that
        many end-points do not retry at once."""
        doubled_ns = self._timeouts.retry_first_ns << min(tries, 16)
        pause_ns = min(doubled_ns, self._timeouts.retry_last_ns)
        return int(pause_ns * (0.75 + 0.5 * self._jitter()))

    def _received(self, peer: str, message: Message, now_ns: int) -> list[SessionInstruction]:
        edge = self._edges.get(peer)
        if edge is None or not edge.is_up:
            return []
        match message:
            case Answer():
                return self._answer(edge, message, now_ns)
            case Notify(body=body, newest=newest):
                try:
                    notice = decode_notice(body)
                except MalformedFrame as problem:
                    return [_note("notice_malformed", edge, problem)]
                if notice is None:
                    return []
                self._registrations.notice_received(notice)
                return [NoticeReceived(notice, newest)]
            case _:
                return _of_channels(edge, message)

    def _answer(self, edge: _Edge, answer: Answer, now_ns: int) -> list[SessionInstruction]:
        try:
            outcomes = decode_outcomes(answer.body).outcomes
        except MalformedFrame as problem:
            return [_note("answer_malformed", edge, problem)]
        if edge.attach is not None and answer.request_id == edge.attach.request_id:
            return self._attach_answered(edge, outcomes, now_ns)
        asked = self._requests.find(answer.request_id)
        if asked is not None and self._is_forgotten(edge, asked, outcomes):
            return self._forgotten(edge, asked, now_ns)
        request = self._requests.answered(answer.request_id, outcomes, edge.name)
        if request is None:
            # A repeated answer to a repeated request; a grant of an unknown contract is undone.
            self._undo(self._registrations.unknown(outcomes))
            return self._flush(now_ns)
        instructions = self._done(request, outcomes, answer.newest)
        if answer.copies:
            instructions.insert(0, CopiesReported(edge.name, answer.copies))
        return [*instructions, *self._flush(now_ns)]

    def _done(
        self, request: Request, outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]
    ) -> list[SessionInstruction]:
        match request.purpose:
            case Purpose.REQUESTED:
                self._registrations.answered(request.command, outcomes)
                return [Answered(request.token, outcomes, newest)]
            case Purpose.RESTORING:
                self._restoring -= 1
                instructions, unwanted = self._registrations.restored(
                    request.command, outcomes, newest
                )
                self._undo(unwanted)
                return [*instructions]
            case Purpose.ABANDONED:
                changed = self._registrations.changed(request.command, outcomes)
                self._undo([] if changed else outcomes)
                return [*changed]
            case Purpose.UNDOING:
                return []
            case _:
                assert_never(request.purpose)

    def _undo(self, outcomes: Sequence[Outcome]) -> None:
        """Undo what was granted after the application had stopped waiting for it."""
        for command in give_back(outcomes):
            self._requests.add(Request(command, Purpose.UNDOING))

    # Attachment and registrations.

    def _attach_answered(
        self, edge: _Edge, outcomes: tuple[Outcome, ...], now_ns: int
    ) -> list[SessionInstruction]:
        outcome = outcomes[0] if outcomes else None
        assert edge.attach is not None
        if isinstance(outcome, AttachedOutcome):
            outcome = self._checked(edge.name, outcome)
        if isinstance(outcome, RefusedOutcome):
            # A new number, or the broker would repeat its refusal; sent after the pause.
            tries = edge.attach.tries
            edge.attach = self._new_attach(edge, now_ns)
            edge.attach.sent_to, edge.attach.tries = edge.name, tries
            edge.attach.deadline_ns = None  # The other edge need not wait for this one.
            edge.attach.retry_at_ns = now_ns + self._pause_ns(tries)
            return [AttachRefused(edge.name, outcome), *self._attach(now_ns)]
        if not isinstance(outcome, AttachedOutcome):
            return []
        is_alone = not self.attached_edges
        has_lost = self._registrations.attached(outcome, is_alone=is_alone) and self._was_attached
        edge.attach = None
        edge.is_attached = self._was_attached = True
        instructions: list[SessionInstruction] = [EdgeAttached(edge.name, outcome)]
        if has_lost:
            # Before `EdgeAttached`: after it, publications would count as registered.
            instructions.insert(0, RegistrationsLost(outcome.code))
            instructions.append(Note("registrations_lost", (("edge", edge.name),)))
            self._registrations.forget_all()
            self._restore_tries, self._restore_at_ns = 0, now_ns
            self._restore(now_ns)
        return [*instructions, *self._attach(now_ns), *self._flush(now_ns)]

    def _checked(self, edge: str, outcome: AttachedOutcome) -> AttachedOutcome | RefusedOutcome:
        """Return an attachment, or its refusal if its channels are not sealed as we demand."""
        if self._endpoint.security != HOP or outcome.datagram_version == SEALED_VERSION:
            return outcome
        refused = SecurityNotSatisfiable(
            f'{edge} answers with channels that are not sealed, and we attach with security "hop"',
            hint="check the edge router and its broker: neither may answer so",
        )
        return RefusedOutcome(code=refused.code, reason=refused.args[0], hint=refused.hint)

    def _is_forgotten(self, edge: _Edge, request: Request, outcomes: tuple[Outcome, ...]) -> bool:
        """Return whether the broker does not know the end-point at this edge; accepted only a few
        times for a request."""
        return (
            (
                request.purpose in (Purpose.REQUESTED, Purpose.RESTORING)
                or self._is_attached_beside(edge)
            )
            and request.repeats < REPEATS_MAX
            and not self._registrations.is_leaving
            and any(
                isinstance(each, RefusedOutcome) and each.code == NotAttached.code
                for each in outcomes
            )
        )

    def _is_attached_beside(self, edge: _Edge) -> bool:
        return any(other.is_attached for other in self._edges.values() if other is not edge)

    def _forgotten(self, edge: _Edge, request: Request, now_ns: int) -> list[SessionInstruction]:
        """Attach again and repeat the request: the broker does not know the end-point at this edge
        although the edge does.

        That decides nothing. The request keeps its number while another edge is attached, which may
        have forwarded it too: under a second number what is granted there would be refused.
        """
        if self._is_attached_beside(edge):
            request.repeats += 1
            if request.sent_to == edge.name:
                self._requests.lose(request)
        else:
            self._requests.repeat(request)
        instructions: list[SessionInstruction] = [EdgeLost(edge.name)] if edge.is_attached else []
        edge.is_attached = False
        return [*instructions, *self._attach(now_ns), *self._flush(now_ns)]

    def _restore(self, now_ns: int) -> None:
        """Request all lost registrations, one round at a time; refused ones are requested again
        later."""
        if self._restore_at_ns is None or now_ns < self._restore_at_ns or self._restoring:
            return
        self._restore_at_ns = None
        for command in self._registrations.restoring():
            self._requests.add(Request(command, Purpose.RESTORING))
            self._restoring += 1

    # Timers.

    def _ticked(self, now_ns: int) -> list[SessionInstruction]:
        self._is_ticking = False
        instructions: list[SessionInstruction] = []
        for request in self._requests.overdue(now_ns):
            if request.purpose is Purpose.REQUESTED:
                request.purpose = Purpose.ABANDONED
                instructions.append(request.timeout_output())
        attaching = [edge.attach for edge in self._edges.values() if edge.attach is not None]
        for request in (*attaching, *self._requests.in_flight()):
            if request.retry_at_ns is not None and now_ns >= request.retry_at_ns:
                self._requests.lose(request)
        if not self._registrations.is_whole and not self._restoring:
            if self._restore_at_ns is None:
                self._restore_at_ns = now_ns + self._pause_ns(self._restore_tries)
                self._restore_tries += 1
            self._restore(now_ns)
        return [*instructions, *self._attach(now_ns), *self._flush(now_ns)]

    def _keep_ticking(self) -> list[SessionInstruction]:
        if self._is_ticking:
            return []
        is_idle = (
            not len(self._requests)
            and self._registrations.is_whole
            and all(edge.attach is None for edge in self._edges.values())
        )
        if is_idle:
            return []
        self._is_ticking = True
        return [SetTimer(TICK, TICK_NS)]


def _note(name: str, edge: _Edge, problem: Exception) -> Note:
    return Note(name, (("edge", edge.name), ("problem", str(problem.args[0]))))


def _of_channels(edge: _Edge, message: Message) -> list[SessionInstruction]:
    """Pass on what an edge says about its channels."""
    match message:
        case ChannelSeed():
            return [SeedReceived(edge.name, message)]
        case AskAddress(channel_id=channel_id):
            return [AddressAsked(edge.name, channel_id)]
        case AddressProved() | AddressRefused():
            return [AddressJudged(edge.name, message)]
        case _:
            return []  # The driver handles Hello, Ping and Bye.
