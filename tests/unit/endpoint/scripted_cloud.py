"""A cloud on paper: drives an `EndPointSession`, answers what it submits, and keeps its clock."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.endpoint.endpoint_session import TICK_NS, EndPointSession
from gridstat.endpoint.session_events import EndPoint, Requested, SessionTimeouts
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.identifiers import VariableId
from gridstat.model.qos import ModalQos
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusVariable
from gridstat.net.command.endpoint_messages import (
    Answer,
    AttachedOutcome,
    EndPointCommand,
    GrantedOutcome,
    Notify,
    Outcome,
    Outcomes,
    PublicationRequest,
    Publish,
    PublishedOutcome,
    Submit,
    Subscribe,
    SubscriptionRequest,
)
from gridstat.net.command.frames import decode_command, encode_body
from gridstat.net.command.machine import Connected, Disconnected, Received, Send, TimerFired
from gridstat.net.command.session_messages import Hello

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.session_events import SessionEvent, SessionInstruction, SessionOutput
    from gridstat.model.channel_security import Security
    from gridstat.net.command.endpoint_messages import Notice

NAME = "c1/north/pmu-1"
NOTES = ("SetTimer", "Note")


def variable(name: str = f"{NAME}/voltage", variable_id: int = 7) -> StatusVariable:
    return StatusVariable(VariableId(variable_id), name, BuiltinType.FLOAT64, Period(1, 60))


def publish(*names: str) -> Publish:
    return Publish(
        publications=tuple(PublicationRequest(variable=variable(name, 0)) for name in names)
    )


def subscribe(*labels: str) -> Subscribe:
    return Subscribe(
        subscriptions=tuple(
            SubscriptionRequest(name=f"c1/x/{label}", qos=ModalQos(), label=label)
            for label in labels
        )
    )


def attached(edge: str = "c1/e0", code: int = 0, known_since: int = 0) -> AttachedOutcome:
    return AttachedOutcome(
        edge=edge,
        host="127.0.0.1",
        data_port=1,
        urgent_port=2,
        up_channel_id=3,
        down_channel_id=4,
        code=code,
        known_since=known_since,
        datagram_version=SEALED_VERSION,
    )


def published(name: str, variable_id: int = 7) -> PublishedOutcome:
    return PublishedOutcome(variable=variable(name, variable_id))


def granted(label: str, subscription_id: int) -> GrantedOutcome:
    return GrantedOutcome(
        subscription_id=subscription_id, variable=variable(f"c1/x/{label}"), label=label
    )


class ScriptedCloud:
    """Cloud that collects the session's instructions in `said`; requests also in `submitted`."""

    def __init__(
        self,
        *edges: str,
        timeouts: SessionTimeouts | None = None,
        security: Security = HOP,
    ) -> None:
        self.now_ns = 0
        self.said: list[SessionInstruction] = []
        self.submitted: list[tuple[str, Submit]] = []
        settings = EndPoint(
            name=NAME,
            edges=edges or ("c1/e0",),
            certificate=b"certificate",
            incarnation="first",
            first_request_id=1_000,
            security=security,
        )
        self.certificate = settings.certificate
        self.sign: Callable[[bytes], bytes] = lambda words: words[:8]
        self.session = EndPointSession(
            settings,
            self.sign,
            lambda: 0.5,
            timeouts,
            renewed=lambda: (self.certificate, self.sign),
        )

    def handle(self, event: SessionEvent) -> list[SessionInstruction]:
        said = self.session.handle(event, self.now_ns)
        self.said += said
        for each in said:
            if isinstance(each, Send) and isinstance(each.message, Submit):
                self.submitted.append((each.peer.removeprefix("router/"), each.message))
        return said

    def words(self, said: list[SessionInstruction]) -> list[SessionOutput]:
        """Return the instructions that concern the application."""
        return [
            each  # type: ignore[misc]
            for each in said
            if not isinstance(each, Send) and type(each).__name__ not in NOTES
        ]

    def connect(self, edge: str = "c1/e0", instance: str = "one") -> list[SessionInstruction]:
        hello = Hello(role="router", name=edge, instance=instance)
        return self.handle(Connected(f"router/{edge}", hello))

    def cut(self, edge: str = "c1/e0") -> list[SessionInstruction]:
        return self.handle(Disconnected(f"router/{edge}"))

    def ask(self, command: EndPointCommand, token: int = 1, within_s: int = 5) -> None:
        self.handle(Requested(token, command, within_s * NS_PER_S))

    def wait(self, seconds: float) -> list[SessionInstruction]:
        """Let time pass, tick by tick."""
        said = []
        for _ in range(round(seconds * NS_PER_S / TICK_NS)):
            self.now_ns += TICK_NS
            said += self.handle(TimerFired("session/tick"))
        return said

    def commands(self) -> list[EndPointCommand]:
        return [decode_command(submit.body) for _, submit in self.submitted]

    def answer(self, *outcomes: Outcome, at: int = -1, by: str = "") -> list[SessionInstruction]:
        """Answer a submitted request: the last one, by the edge that it went to."""
        edge, submit = self.submitted[at]
        body = encode_body(Outcomes(outcomes=outcomes))
        answer = Answer(request_id=submit.request_id, body=body, newest=(b"newest",))
        return self.handle(Received(f"router/{by or edge}", answer))

    def tell(self, notice: Notice, edge: str = "c1/e0") -> list[SessionInstruction]:
        return self.handle(Received(f"router/{edge}", Notify(body=encode_body(notice))))

    def attach(
        self, edge: str = "c1/e0", code: int = 0, known_since: int = 0
    ) -> list[SessionInstruction]:
        """Connect and answer the attachment."""
        self.connect(edge)
        return self.answer(attached(edge, code, known_since))


def attached_cloud(*edges: str) -> ScriptedCloud:
    cloud = ScriptedCloud(*edges)
    for edge in edges or ("c1/e0",):
        cloud.attach(edge)
    cloud.submitted.clear()
    return cloud
