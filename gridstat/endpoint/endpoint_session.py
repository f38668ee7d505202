"""The end-point's side of the command plane: attach, ask, hear, and come back after losses.

Pure: events in, instructions out (`session_words.py`). Requests go to any attached edge router
and are repeated until answered (`requests.py`); what the cloud forgot is registered again
(`registrations.py`). `connection.py` runs it with sockets, the simulator in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, assert_never

from gridstat.endpoint.registrations import Registrations
from gridstat.endpoint.request_table import Purpose, Request, RequestTable, give_back
from gridstat.endpoint.session_events import (
    Answered,
    Ask,
    AttachRefused,
    CopiesReported,
    EdgeAttached,
    EdgeLost,
    Patience,
    RegistrationsLost,
    SessionEvent,
    SessionInstruction,
    Told,
)
from gridstat.model.errors import LimitReached, MalformedFrame, NotAttached
from gridstat.net.command.endpoint_messages import (
    Answer,
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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.endpoint.session_events import EndPoint
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.messages import Message

TICK: Final = "session/tick"
TICK_NS: Final = 100_000_000
"""Repetitions and deadlines are looked after so often, while there are any."""
REPEATS_MAX: Final = 3


@dataclass(slots=True)
class _Edge:
    """One edge router as this machine sees it; `attach` is the request that is on its way."""

    name: str
    instance: str = ""
    is_up: bool = False
    is_attached: bool = False
    attach: Request | None = None

    @property
    def peer(self) -> str:
        return f"router/{self.name}"


class EndPointSession:
    """Attached to as many of its edges as can be reached; every request is answered exactly once,
    by the cloud or by its deadline."""

    def __init__(
        self,
        endpoint: EndPoint,
        sign: Callable[[bytes], bytes],
        jitter: Callable[[], float],
        patience: Patience | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._sign = sign
        self._jitter = jitter
        self._patience = patience or Patience()
        self._edges = {f"router/{name}": _Edge(name) for name in endpoint.edges}
        self._requests = RequestTable(endpoint.first_request_id)
        self._registrations = Registrations()
        self._was_attached = False
        self._restoring = 0
        self._restore_tries = 0
        self._restore_at_ns: int | None = None
        self._is_ticking = False

    @property
    def attached_edges(self) -> tuple[str, ...]:
        """The edges that take requests now, the preferred one first."""
        return tuple(edge.name for edge in self._edges.values() if edge.is_attached)

    def handle(self, event: SessionEvent, now_ns: int) -> list[SessionInstruction]:
        """What to do about an event: `session.handle(Connected(peer, hello), now_ns)`."""
        match event:
            case Connected():
                said = self._connected(event, now_ns)
            case Disconnected(peer=peer):
                said = self._disconnected(peer, now_ns)
            case Received(peer=peer, message=message):
                said = self._received(peer, message, now_ns)
            case TimerFired(name=name):
                said = self._ticked(now_ns) if name == TICK else []
            case Ask():
                said = self._asked(event, now_ns)
            case _:
                assert_never(event)
        return [*said, *self._keep_ticking()]

    # Sessions come and go.

    def _connected(self, event: Connected, now_ns: int) -> list[SessionInstruction]:
        edge = self._edges.get(event.peer)
        if edge is None:
            return []
        if edge.attach is not None and edge.instance != event.hello.instance:
            edge.attach = None  # An answer that another process got would name wrong ports.
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
        said: list[SessionInstruction] = [EdgeLost(edge.name)] if was_attached else []
        return [*said, *self._attach(now_ns), *self._flush(now_ns)]

    def _attach(self, now_ns: int) -> list[SessionInstruction]:
        """Ask at every edge that is up; at one alone until the cloud has said what it knows of us,
        for an old request must not reach the broker behind a newer one."""
        said: list[SessionInstruction] = []
        for edge in self._edges.values():
            if not edge.is_up or edge.is_attached:
                continue
            if edge.attach is None:
                if not self._was_attached and self._is_led(now_ns):
                    continue
                edge.attach = self._new_attach(edge, now_ns)
                said.append(self._submit(edge.attach, edge, now_ns))
            elif edge.attach.sent_to != edge.name:
                said.append(self._submit(edge.attach, edge, now_ns))
        return said

    def _is_led(self, now_ns: int) -> bool:
        """Whether another edge's attachment is still young enough to wait for."""
        return any(
            edge.is_up
            and edge.attach is not None
            and edge.attach.deadline_ns is not None
            and now_ns < edge.attach.deadline_ns
            for edge in self._edges.values()
        )

    def _new_attach(self, edge: _Edge, now_ns: int) -> Request:
        endpoint = self._endpoint
        command = Attach(
            edge=edge.name,
            certificate=endpoint.certificate,
            incarnation=endpoint.incarnation,
            first_time=not self._was_attached,
            host=endpoint.hosts[endpoint.edges.index(edge.name)],
            data_port=endpoint.data_port,
            urgent_port=endpoint.urgent_port,
            datagram_versions=endpoint.datagram_versions,
        )
        lead_ns = now_ns + self._patience.attach_lead_ns
        request = Request(command, Purpose.ASKED, deadline_ns=lead_ns)
        request.request_id = self._requests.next_id()
        return request

    # Requests and their answers.

    def _asked(self, ask: Ask, now_ns: int) -> list[SessionInstruction]:
        if not self._requests.has_room:
            reason = f"{len(self._requests):,} requests wait for an answer already"
            full = RefusedOutcome(code=LimitReached.code, reason=reason)
            return [Answered(ask.token, (full,))]
        self._registrations.asked(ask.command)
        deadline_ns = now_ns + ask.within_ns
        self._requests.add(Request(ask.command, Purpose.ASKED, ask.token, deadline_ns))
        return self._flush(now_ns)

    def _flush(self, now_ns: int) -> list[SessionInstruction]:
        """Send what is not on its way: first what lost its edge, then what has waited."""
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
            words = signed_bytes(self._endpoint.name, request.request_id, request.body)
            request.signature = self._sign(words)
        request.sent_to = edge.name
        request.retry_at_ns = now_ns + self._pause_ns(request.tries)
        request.tries += 1
        message = Submit(
            request_id=request.request_id, body=request.body, signature=request.signature
        )
        return Send(edge.peer, message)

    def _pause_ns(self, tries: int) -> int:
        """Doubled with every try, spread by a quarter, so that a crowd does not come at once."""
        doubled_ns = self._patience.retry_first_ns << min(tries, 16)
        pause_ns = min(doubled_ns, self._patience.retry_last_ns)
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
                self._registrations.told(notice)
                return [Told(notice, newest)]
            case _:
                return []  # Hello, Ping and Bye are the driver's.

    def _answer(self, edge: _Edge, answer: Answer, now_ns: int) -> list[SessionInstruction]:
        try:
            outcomes = decode_outcomes(answer.body).outcomes
        except MalformedFrame as problem:
            return [_note("answer_malformed", edge, problem)]
        if edge.attach is not None and answer.request_id == edge.attach.request_id:
            return self._attach_answered(edge, outcomes, now_ns)
        request = self._requests.answered(answer.request_id, outcomes)
        if request is None:
            # Repeated, since we had asked twice; but never keep what nobody here knows of.
            self._undo(self._registrations.unknown(outcomes))
            return self._flush(now_ns)
        if self._is_forgotten(request, outcomes):
            return self._forgotten(request, now_ns)
        said = self._done(request, outcomes, answer.newest)
        if answer.copies:
            said.insert(0, CopiesReported(edge.name, answer.copies))
        return [*said, *self._flush(now_ns)]

    def _done(
        self, request: Request, outcomes: tuple[Outcome, ...], newest: tuple[bytes, ...]
    ) -> list[SessionInstruction]:
        match request.purpose:
            case Purpose.ASKED:
                self._registrations.answered(request.command, outcomes)
                return [Answered(request.token, outcomes, newest)]
            case Purpose.RESTORING:
                self._restoring -= 1
                said, unwanted = self._registrations.restored(request.command, outcomes, newest)
                self._undo(unwanted)
                return [*said]
            case Purpose.ABANDONED:
                changed = self._registrations.changed(request.command, outcomes)
                self._undo([] if changed else outcomes)
                return [*changed]
            case Purpose.UNDOING:
                return []
            case _:
                assert_never(request.purpose)

    def _undo(self, outcomes: Sequence[Outcome]) -> None:
        """Give back what was granted after the application had stopped waiting for it."""
        for command in give_back(outcomes):
            self._requests.add(Request(command, Purpose.UNDOING))

    # Attachment and what the cloud remembers.

    def _attach_answered(
        self, edge: _Edge, outcomes: tuple[Outcome, ...], now_ns: int
    ) -> list[SessionInstruction]:
        outcome = outcomes[0] if outcomes else None
        assert edge.attach is not None
        if isinstance(outcome, RefusedOutcome):
            # Another number, or the broker would only repeat itself; not before the pause is over.
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
        said: list[SessionInstruction] = [EdgeAttached(edge.name, outcome)]
        if has_lost:
            # First: from the attachment on, what is sent would be taken for registered.
            said.insert(0, RegistrationsLost(outcome.code))
            said.append(Note("registrations_lost", (("edge", edge.name),)))
            self._registrations.forget_all()
            self._restore_tries, self._restore_at_ns = 0, now_ns
            self._restore(now_ns)
        return [*said, *self._attach(now_ns), *self._flush(now_ns)]

    def _is_forgotten(self, request: Request, outcomes: tuple[Outcome, ...]) -> bool:
        """Whether the broker says that it does not know us; not believed for ever."""
        return (
            request.purpose in (Purpose.ASKED, Purpose.RESTORING)
            and request.repeats < REPEATS_MAX
            and not self._registrations.is_leaving
            and any(
                isinstance(each, RefusedOutcome) and each.code == NotAttached.code
                for each in outcomes
            )
        )

    def _forgotten(self, request: Request, now_ns: int) -> list[SessionInstruction]:
        """The broker does not know us although the edge does: attach anew, then ask again."""
        self._requests.repeat(request)
        said: list[SessionInstruction] = []
        for edge in self._edges.values():
            if edge.is_attached:
                edge.is_attached = False
                said.append(EdgeLost(edge.name))
        return [*said, *self._attach(now_ns)]

    def _restore(self, now_ns: int) -> None:
        """Ask for all that is lost, once at a time; what is refused is asked again later."""
        if self._restore_at_ns is None or now_ns < self._restore_at_ns or self._restoring:
            return
        self._restore_at_ns = None
        for command in self._registrations.restoring():
            self._requests.add(Request(command, Purpose.RESTORING))
            self._restoring += 1

    # Time passes.

    def _ticked(self, now_ns: int) -> list[SessionInstruction]:
        self._is_ticking = False
        said: list[SessionInstruction] = []
        for request in self._requests.overdue(now_ns):
            if request.purpose is Purpose.ASKED:
                request.purpose = Purpose.ABANDONED
                said.append(request.last_word())
        attaching = [edge.attach for edge in self._edges.values() if edge.attach is not None]
        for request in (*attaching, *self._requests.in_flight()):
            if request.retry_at_ns is not None and now_ns >= request.retry_at_ns:
                self._requests.lose(request)
        if not self._registrations.is_whole and not self._restoring:
            if self._restore_at_ns is None:
                self._restore_at_ns = now_ns + self._pause_ns(self._restore_tries)
                self._restore_tries += 1
            self._restore(now_ns)
        return [*said, *self._attach(now_ns), *self._flush(now_ns)]

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


def _note(word: str, edge: _Edge, problem: Exception) -> Note:
    return Note(word, (("edge", edge.name), ("problem", str(problem.args[0]))))
