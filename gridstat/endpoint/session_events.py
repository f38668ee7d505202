"""Events and outputs of an end-point's session, beyond those of every state machine.

The application sends requests (`Requested`); the driver performs the instructions: it sends, keeps
timers, opens channels, and passes answers and notices to the application.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.channel_security import HOP, Security
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.machine import Connected, Disconnected, Instruction, Received, TimerFired

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import (
        AddressProved,
        AddressRefused,
        AttachedOutcome,
        EdgeCopies,
        EndPointCommand,
        GrantedOutcome,
        Notice,
        Outcome,
        ProveAddress,
        PublishedOutcome,
        RefusedOutcome,
    )
    from gridstat.net.command.router_messages import ChannelSeed, SeedAccepted

EDGES_MAX: Final = 2


@dataclass(frozen=True, slots=True)
class EndPoint:
    """Identity of the end-point, and its edge routers, the preferred one first.

    `incarnation` and `first_request_id` are new with every process; the identifiers of requests
    must grow from one process to the next, so they start from the wall clock in nanoseconds.
    `hosts` has the address under which each edge reaches us; without ports no events come.
    """

    name: str
    edges: tuple[str, ...]
    certificate: bytes
    incarnation: str
    first_request_id: int
    hosts: tuple[str, ...] = ("", "")
    data_port: int = 0
    urgent_port: int = 0
    datagram_versions: tuple[int, ...] = (1,)
    security: Security = HOP
    """Whether the channels to and from the edges are sealed; the edges must agree."""

    def __post_init__(self) -> None:
        assert 1 <= len(self.edges) <= EDGES_MAX, "one or two edges"
        assert len(set(self.edges)) == len(self.edges), "two different edges"


@dataclass(frozen=True, slots=True)
class SessionTimeouts:
    """Times, in nanoseconds, between retries of the session."""

    retry_first_ns: int = NS_PER_S
    retry_last_ns: int = 8 * NS_PER_S
    attach_lead_ns: int = 2 * NS_PER_S
    """Time for which the first attachment goes alone; its answer says whether older state still
    exists."""


@dataclass(frozen=True, slots=True)
class Requested:
    """Request of the application with a timeout of `within_ns`; `token` comes back in the
    answer."""

    token: int
    command: EndPointCommand
    within_ns: int


@dataclass(frozen=True, slots=True)
class SeedAnswered:
    """A seed of this edge is accepted, or our address is proved; the answer is to be sent."""

    edge: str
    accepted: SeedAccepted | ProveAddress


SessionEvent: TypeAlias = (
    Connected | Disconnected | Received | TimerFired | Requested | SeedAnswered
)


@dataclass(frozen=True, slots=True)
class AddressAsked:
    """An edge asks for a counter that came on one of its channels."""

    edge: str
    channel_id: int


@dataclass(frozen=True, slots=True)
class AddressJudged:
    """An edge sends events on a channel, because our address is proved, or else nothing."""

    edge: str
    verdict: AddressProved | AddressRefused


@dataclass(frozen=True, slots=True)
class SeedReceived:
    """An edge has given a seed of one of its channels, before or after it is attached."""

    edge: str
    message: ChannelSeed


@dataclass(frozen=True, slots=True)
class EdgeAttached:
    """The edge is attached: events may be sent to it and are expected from it, on the channels of
    the outcome."""

    edge: str
    outcome: AttachedOutcome


@dataclass(frozen=True, slots=True)
class RegistrationsLost:
    """The cloud has registered the end-point newly: nothing is registered until it is restored."""

    code: int


@dataclass(frozen=True, slots=True)
class EdgeLost:
    """The session with the edge is lost; its channels may still work."""

    edge: str


@dataclass(frozen=True, slots=True)
class AttachRefused:
    """The cloud does not take us at this edge for now; the machine tries again."""

    edge: str
    refused: RefusedOutcome


@dataclass(frozen=True, slots=True)
class Answered:
    """Answer to a request: one outcome for each item, in order, and events that the edge had
    cached."""

    token: int
    outcomes: tuple[Outcome, ...]
    newest: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer came in time; if the request is granted later, it is undone."""

    token: int


@dataclass(frozen=True, slots=True)
class CopiesReported:
    """Copies of some variables by incoming channel of an edge."""

    edge: str
    copies: tuple[EdgeCopies, ...]


@dataclass(frozen=True, slots=True)
class NoticeReceived:
    """A notice of the cloud."""

    notice: Notice
    newest: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class PublicationRestored:
    """The cloud had forgotten a publication; it is registered again, or was refused for now."""

    name: str
    outcome: PublishedOutcome | RefusedOutcome


@dataclass(frozen=True, slots=True)
class SubscriptionRestored:
    """The cloud had forgotten a subscription; it is granted again, or was refused for now."""

    label: str
    outcome: GrantedOutcome | RefusedOutcome
    newest: tuple[bytes, ...] = ()


SessionOutput: TypeAlias = (
    EdgeAttached
    | RegistrationsLost
    | EdgeLost
    | AttachRefused
    | Answered
    | Unanswered
    | CopiesReported
    | NoticeReceived
    | SeedReceived
    | AddressAsked
    | AddressJudged
    | PublicationRestored
    | SubscriptionRestored
)
SessionInstruction: TypeAlias = Instruction | SessionOutput
