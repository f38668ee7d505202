"""A simulated end-point: the real session machine, and an application above it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from gridstat.endpoint.endpoint_session import EndPointSession
from gridstat.endpoint.session_events import (
    AddressAsked,
    AddressJudged,
    Answered,
    AttachRefused,
    EdgeAttached,
    EdgeLost,
    EndPoint,
    NoticeReceived,
    PublicationRestored,
    RegistrationsLost,
    SeedAnswered,
    SeedReceived,
    SubscriptionRestored,
    Unanswered,
)
from gridstat.model.errors import RouterFull
from gridstat.net.command.endpoint_messages import (
    Answer,
    GrantedOutcome,
    ProveAddress,
    PublishedOutcome,
)
from gridstat.net.command.frames import decode_outcomes
from gridstat.net.command.machine import Received
from gridstat.net.command.router_messages import SeedAccepted
from lab.simulation.application import Application
from lab.simulation.broker_node import plain_signature
from lab.simulation.model_keys import STEP_NS, ModelKeys
from lab.simulation.node import Node
from lab.simulation.world import WALL_NS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.model.keys.channel_keys import SeedInstalled
    from gridstat.model.rate_law import Period
    from gridstat.net.command.endpoint_messages import Outcome
    from gridstat.net.command.machine import Note
    from lab.simulation.application import Asked
    from lab.simulation.network import Network

PORT_FIRST: Final = 40_000


class Judge(Protocol):
    """Observer of every answer that an application gets."""

    def answered(self, node: EndPointNode, asked: Asked, outcomes: tuple[Outcome, ...]) -> None: ...
    def not_answered(self, node: EndPointNode, asked: Asked) -> None: ...


class EndPointNode(Node):
    """Node of an end-point; `wanted` are its variables, which survive its processes."""

    role = "endpoint"
    doing: ClassVar[dict[type, str]] = {
        **Node.doing,
        EdgeAttached: "_attached",
        EdgeLost: "_lost",
        RegistrationsLost: "_registrations_lost",
        AttachRefused: "_refused",
        Answered: "_answered",
        Unanswered: "_unanswered",
        NoticeReceived: "_notified",
        SeedReceived: "_seed_received",
        AddressAsked: "_address_asked",
        AddressJudged: "_address_judged",
        PublicationRestored: "_publication_restored",
        SubscriptionRestored: "_subscription_restored",
    }

    def __init__(
        self, network: Network, name: str, edges: tuple[str, ...], judge: Judge, number: int
    ) -> None:
        super().__init__(network, name, number)
        self.edges = edges
        self.judge = judge
        self.wanted: dict[str, Period | None] = {}
        self.clock_offset_ns = 0
        self.attached: set[str] = set()
        self.turned_away: set[str] = set()
        """Edges that have no room for the publications of this end-point."""
        self.channels_up: dict[str, int] = {}
        self.keys = self._new_keys()
        self._channels: dict[str, tuple[int, int]] = {}
        self._givers: dict[int, str] = {}
        self.application = Application(self)
        self.is_gone = False
        self.on_return: Callable[[EndPointNode], None] = _nothing
        self._key = self.peer.encode()
        self._bodies: dict[int, bytes] = {}

    def start(self) -> None:
        """Start a new process without the state of the process before."""
        lives = self.process // 2
        endpoint = EndPoint(
            name=self.name,
            edges=self.edges,
            certificate=self._key,
            incarnation=f"{self.name}#{self.process}",
            first_request_id=WALL_NS + self.world.now_ns + self.clock_offset_ns,
            hosts=("10.1.0.1", "10.1.0.1"),
            data_port=PORT_FIRST + self.number * 4 + lives % 2 * 2,
            urgent_port=PORT_FIRST + self.number * 4 + lives % 2 * 2 + 1,
            datagram_versions=(1, 2, 3),
        )
        self.attached.clear()
        self.turned_away.clear()
        self.channels_up.clear()
        self._bodies.clear()
        self.is_gone = False
        self.application = Application(self)
        self.begin(EndPointSession(endpoint, self._sign, self.world.draw))
        self.keys = self._new_keys()
        self._channels.clear()
        self._givers.clear()
        self.world.after(STEP_NS, self._step_keys, self.process)
        for edge in self.edges:
            self.network.connect(self, f"router/{edge}")
        if lives:
            self.on_return(self)

    def crash(self, *, is_sudden: bool) -> None:
        super().crash(is_sudden=is_sudden)
        self.keys.crash()
        self.attached.clear()

    def leave(self) -> None:
        """End the process, since the cloud has accepted its detachment."""
        self.is_gone = True
        self.world.after(0, self._end, self.process)

    def _end(self, process: int) -> None:
        if process == self.process:
            self.crash(is_sudden=False)

    def tell(self, event: object) -> None:
        if type(event) is Received and type(event.message) is Answer:
            self._compare(event.message)
        super().tell(event)

    def _compare(self, answer: Answer) -> None:
        """Check that every answer to a request is the same."""
        known = self._bodies.setdefault(answer.request_id, answer.body)
        if known == answer.body:
            return
        before, now = _given(known), _given(answer.body)
        if before and now and before != now:
            raise PropertyBroken(
                "answers are repeated, not redone",
                f"{self.name} got {before}, then {now}, for request {answer.request_id}",
            )

    def _sign(self, message: bytes) -> bytes:
        return plain_signature(self._key, message)

    # Messages from the session.

    def _attached(self, instruction: EdgeAttached) -> None:
        self.attached.add(instruction.edge)
        self.turned_away.discard(instruction.edge)
        self.channels_up[instruction.edge] = instruction.outcome.up_channel_id
        self._open_channels(instruction)

    # Keys.

    def _new_keys(self) -> ModelKeys:
        who = f"{self.name}#{self.process}"
        return ModelKeys(self.network.keys, self.world, who, self._owner_of)

    def _owner_of(self, channel_id: int) -> str:
        del channel_id
        return self.name.partition("/")[0]

    def _open_channels(self, attached: EdgeAttached) -> None:
        """Open the channels of an edge; those of an earlier attachment close."""
        up, down = attached.outcome.up_channel_id, attached.outcome.down_channel_id
        before = self._channels.get(attached.edge)
        if before == (up, down):
            return
        if before is not None:
            self.keys.close_channel(before[0])
            self.keys.close_source(before[1])
        self._channels[attached.edge] = up, down
        self.keys.open_channel(up)
        self._answer_seeds(self.keys.open_source(down))

    def _seed_received(self, instruction: SeedReceived) -> None:
        message = instruction.message
        self._givers[message.channel_id] = instruction.edge
        self._answer_seeds(self.keys.take(message))

    def _address_asked(self, asked: AddressAsked) -> None:
        """Answer with any counter: there are no datagrams here."""
        proof = ProveAddress(channel_id=asked.channel_id, counter=1)
        self.tell(SeedAnswered(asked.edge, proof))

    def _address_judged(self, judged: AddressJudged) -> None:
        if self.world.is_traced:
            self.world.tell(self.peer, f"is told of its address: {judged.verdict}")

    def _answer_seeds(self, installed: list[SeedInstalled]) -> None:
        for each in installed:
            accepted = SeedAccepted(
                channel_id=each.channel_id, number=each.number, first_epoch=each.first_epoch
            )
            self.tell(SeedAnswered(self._givers[each.channel_id], accepted))

    def _step_keys(self, process: int) -> None:
        if process == self.process:
            self.keys.step()
            self.world.after(STEP_NS, self._step_keys, process)

    def _lost(self, instruction: EdgeLost) -> None:
        self.attached.discard(instruction.edge)

    def _registrations_lost(self, instruction: RegistrationsLost) -> None:
        """Trace the loss; the session repeats the requests and reports each result."""
        if self.world.is_traced:
            self.world.tell(self.peer, f"is not known any more: code {instruction.code}")

    def _refused(self, instruction: AttachRefused) -> None:
        if instruction.refused.code == RouterFull.code:
            self.turned_away.add(instruction.edge)
        if self.world.is_traced:
            self.world.tell(self.peer, f"is refused: {instruction.refused.reason}")

    def _answered(self, instruction: Answered) -> None:
        self.application.answered(instruction.token, instruction.outcomes)

    def _unanswered(self, instruction: Unanswered) -> None:
        self.application.not_answered(instruction.token)

    def _notified(self, instruction: NoticeReceived) -> None:
        self.application.notified(instruction.notice)

    def _publication_restored(self, instruction: PublicationRestored) -> None:
        self.application.publication_restored(instruction)

    def _subscription_restored(self, instruction: SubscriptionRestored) -> None:
        self.application.subscription_restored(instruction)

    def note(self, instruction: Note) -> None:
        if instruction.word == "registrations_lost":
            self.application.lost_all()
        super().note(instruction)


def _given(body: bytes) -> list[int]:
    """Return the granted identifiers; another answer may follow a refusal."""
    found = []
    for outcome in decode_outcomes(body).outcomes:
        if isinstance(outcome, GrantedOutcome):
            found.append(outcome.subscription_id)
        elif isinstance(outcome, PublishedOutcome):
            found.append(int(outcome.variable.variable_id))
    return found


def _nothing(_: EndPointNode) -> None:
    """Ignore the restart of a process."""
