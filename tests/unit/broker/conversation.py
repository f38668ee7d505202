"""A leaf broker talking to stand-ins: routers with real order tables, end-points, a journal.

No socket and no clock: instructions are carried out at once in virtual time, timers fire when the
test says so, and every message goes through its bytes.
"""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from gridstat.broker.context import Outside
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.requests.command_dispatcher import SERVE_TIMER
from gridstat.broker.settings import BrokerSettings
from gridstat.model.channel_security import HOP
from gridstat.net.command.endpoint_messages import (
    Attach,
    AttachedOutcome,
    EndPointCommand,
    GrantedOutcome,
    Notice,
    Outcome,
    Outcomes,
    PublishedOutcome,
    RefusedOutcome,
)
from gridstat.net.command.endpoint_signatures import signed_bytes
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Disconnected,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.messages import (
    AttachmentChanged,
    ChangeTable,
    ChannelSeed,
    DetachEndPoint,
    Forward,
    Hello,
    Message,
    OperatorAnswer,
    PathOrder,
    Push,
    Return,
    RouterAccepted,
    SeedAccepted,
    TableChanged,
)
from lab.open_access import with_open_access
from tests.unit.broker.stand_ins import (
    CENTRE,
    CLOUD,
    PMU,
    WALL_NS,
    FakeRouter,
    PlainVerifier,
    check_soundness,
    publish,
    ring,
    subscribe,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gridstat.model.channel_security import Security
    from gridstat.model.cloud import EventChannel, Router
    from gridstat.model.qos import QosRequest
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.machine import Event, Instruction


Asked = TypeVar("Asked")
_MESSAGES: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
_OUTCOMES = msgspec.msgpack.Decoder(Outcomes)
_NOTICES: msgspec.msgpack.Decoder[Notice] = msgspec.msgpack.Decoder(Notice)


class Conversation:
    """A broker and all its peers; `journal` survives a kill of the broker."""

    def __init__(
        self,
        topology: tuple[list[Router], list[EventChannel]] | None = None,
        *,
        settings: BrokerSettings | None = None,
    ) -> None:
        self.routers_given, self.channels_given = topology or ring()
        self.settings = with_open_access(settings or BrokerSettings(CLOUD))
        self.journal: list[bytes] = []
        self.written_lengths: list[int] = []
        self.now_ns = 0
        self.timers: dict[str, int] = {}
        self.routers = {
            router.name: FakeRouter(router.name, 10_000 + 10 * at)
            for at, router in enumerate(self.routers_given)
        }
        self.notes: list[Note] = []
        self.closed: list[Close] = []
        self.operator_answers: list[OperatorAnswer] = []
        self.told_parent: list[Message] = []
        self.answers: dict[tuple[str, int], tuple[Outcome, ...]] = {}
        self.answered_by: list[tuple[str, str, int]] = []
        self.answered_at: dict[tuple[str, int], int] = {}
        self.notices: dict[str, list[Notice]] = {}
        self.detached: list[tuple[str, str]] = []
        self.is_disk_full = False
        self.is_journal_held = False
        self.is_serving = True
        """Whether waiting requests are served at once, and not only when time passes."""
        self.held_persists: deque[Persist] = deque()
        self.failed_epoch = -1
        self.request_id = 1_000
        self.may_fail = False
        self.instructions: list[Instruction] = []
        self.broker = self.new_broker()

    # The broker's life.

    def new_broker(self) -> LeafBroker:
        return LeafBroker(
            self.settings,
            Outside(PlainVerifier(), lambda: WALL_NS + self.now_ns),
            routers=self.routers_given,
            channels=self.channels_given,
        )

    def start(self, *, without: str = "") -> Conversation:
        """Start the broker and let all routers report, or all but one."""
        self.carry_out(self.broker.start(self.now_ns))
        for name in sorted(self.routers.keys() - {without}):
            self.connect(name)
        self.settle()
        return self

    def kill_broker(self) -> None:
        """Like kill -9: only the journal and the routers' tables are left."""
        for router in self.routers.values():
            router.is_connected = False
            router.is_first_time = False
        self.timers.clear()
        self.held_persists.clear()
        self.failed_epoch = -1
        self.broker = self.new_broker()
        self.broker.restore(self.journal)

    # Routers.

    def connect(self, name: str) -> None:
        router = self.routers[name]
        router.is_connected = True
        hello = Hello(role="router", name=name, instance=router.instance)
        self.tell(Connected(router.peer, hello))
        self.tell(Received(router.peer, router.report()))

    def disconnect(self, name: str) -> None:
        router = self.routers[name]
        router.is_connected = False
        router.is_first_time = False
        self.tell(Disconnected(router.peer))

    def confirm(self, name: str) -> None:
        """Let a silent router confirm what it has been sent."""
        router = self.routers[name]
        said, router.unconfirmed = router.unconfirmed, []
        for message in said:
            self.tell(Received(router.peer, message))

    def hear(self, router: str, message: Message) -> None:
        self.tell(Received(f"router/{router}", message))

    def fire(self, name: str) -> None:
        """Let one timer fire now, whenever it would have."""
        self.timers.pop(name)
        self.tell(TimerFired(name))

    def path_orders(self, router: str) -> list[PathOrder]:
        return list(self.routers[router].table.paths.values())

    def differing(self) -> list[str]:
        """Routers that do not hold exactly what the broker wants of them."""
        return [
            name
            for name, router in sorted(self.routers.items())
            if router.table.digest != self.broker.tables[name].wanted.digest
        ]

    # End-points.

    def ask(
        self,
        endpoint: str,
        edge: str,
        command: EndPointCommand,
        *,
        request_id: int | None = None,
        key: str | None = None,
    ) -> tuple[Outcome, ...]:
        """Send a request and let everything happen; the outcomes, if it was answered."""
        number = self.send(endpoint, edge, command, request_id=request_id, key=key)
        self.settle()
        return self.answers.get((endpoint, number), ())

    def send(
        self,
        endpoint: str,
        edge: str,
        command: EndPointCommand,
        *,
        request_id: int | None = None,
        key: str | None = None,
    ) -> int:
        """Send a request and do nothing more; its number."""
        if request_id is None:
            self.request_id += 1
            request_id = self.request_id
        body = msgspec.msgpack.encode(command)
        signer = f"endpoint/{key or endpoint}".encode()
        signature = signer + signed_bytes(endpoint, request_id, body)
        forward = Forward(endpoint=endpoint, request_id=request_id, body=body, signature=signature)
        self.hear(edge, forward)
        return request_id

    def attach(
        self,
        endpoint: str,
        *edges: str,
        incarnation: str = "a",
        first_time: bool = True,
        data_port: int = 5_000,
        security: Security = HOP,
    ) -> list[AttachedOutcome]:
        found = []
        for edge in edges:
            command = Attach(
                edge=edge,
                certificate=f"endpoint/{endpoint}".encode(),
                incarnation=incarnation,
                first_time=first_time,
                host="10.1.0.1",
                data_port=data_port,
                urgent_port=data_port + 1 if data_port else 0,
                datagram_versions=(1, 2, 3),
                security=security,
            )
            found.append(self.only(AttachedOutcome, self.ask(endpoint, edge, command)))
            self.routers[edge].attached.add(endpoint)
        return found

    def lose(self, endpoint: str, *edges: str) -> None:
        """The end-point's sessions with these edges break."""
        for edge in edges:
            self.routers[edge].attached.discard(endpoint)
            self.hear(edge, AttachmentChanged(endpoint=endpoint, is_up=False))
        self.settle()

    def publish(self, name: str, edge: str, **facts: Any) -> StatusVariable:
        outcomes = self.ask(name.rpartition("/")[0], edge, publish(variable(name, **facts)))
        return self.only(PublishedOutcome, outcomes).variable

    def subscribe(
        self, endpoint: str, edge: str, name: str, request: QosRequest | None = None
    ) -> GrantedOutcome:
        outcomes = self.ask(endpoint, edge, subscribe(name, request))
        return self.only(GrantedOutcome, outcomes)

    @staticmethod
    def only(kind: type[Asked], outcomes: Sequence[Outcome]) -> Asked:
        assert len(outcomes) == 1, outcomes
        (outcome,) = outcomes
        assert isinstance(outcome, kind), outcome
        return outcome

    # Time and instructions.

    def tell(self, event: Event) -> None:
        self.carry_out(self.broker.handle(event, self.now_ns))
        while self.is_serving and self.timers.get(SERVE_TIMER, self.now_ns + 1) <= self.now_ns:
            del self.timers[SERVE_TIMER]
            self.carry_out(self.broker.handle(TimerFired(SERVE_TIMER), self.now_ns))

    def settle(self) -> None:
        """Let the flush timer fire until nothing more is on its way."""
        while "flush" in self.timers or self.timers.get("replan") == self.now_ns:
            self.advance(self.settings.flush_after_ns)

    def advance(self, by_ns: int) -> None:
        """Let time pass and all timers fire that run out meanwhile, in their order."""
        end_ns = self.now_ns + by_ns
        while self.timers:
            name = min(self.timers, key=lambda timer: (self.timers[timer], timer))
            if self.timers[name] > end_ns:
                break
            self.now_ns = max(self.now_ns, self.timers.pop(name))
            self.tell(TimerFired(name))
        self.now_ns = end_ns

    def carry_out(self, instructions: Iterable[Instruction]) -> None:
        for instruction in instructions:
            self.instructions.append(instruction)
            match instruction:
                case Send(peer=peer, message=message):
                    self._deliver(peer, _MESSAGES.decode(msgspec.msgpack.encode(message)))
                case Persist():
                    self.held_persists.append(instruction)
                    if not self.is_journal_held:
                        self.write()
                case SetTimer(name=name, after_ns=after_ns):
                    self.timers[name] = self.now_ns + after_ns
                case CancelTimer(name=name):
                    self.timers.pop(name, None)
                case Close():
                    self.closed.append(instruction)
                case Note():
                    self.notes.append(instruction)
                    is_failure = instruction.word in {"request_failed", "message_failed"}
                    assert not is_failure or self.may_fail, instruction

    def write(self, count_max: int | None = None) -> None:
        """Let the journal take what waits; a full disk fails the rest of the epoch too."""
        left = count()
        while self.held_persists and (count_max is None or next(left) < count_max):
            persist = self.held_persists.popleft()
            epoch = persist.token >> 32
            if self.is_disk_full or epoch <= self.failed_epoch:
                self.failed_epoch = max(self.failed_epoch, epoch)
                self.tell(PersistFailed(persist.token, "database or disk is full"))
                continue
            if persist.operations and persist.operations[0] == SNAPSHOT_MARK:
                self.journal.clear()
            self.journal.extend(persist.operations)
            self.written_lengths.append(len(self.journal))
            self.carry_out(persist.then)
            self.tell(Persisted(persist.token))

    def fail_first_write(self) -> None:
        """The journal fails the first entry that waits, and has not come to the others yet."""
        persist = self.held_persists.popleft()
        self.failed_epoch = persist.token >> 32
        self.tell(PersistFailed(persist.token, "database or disk is full"))

    def _deliver(self, peer: str, message: Message) -> None:
        role, _, name = peer.partition("/")
        if role == "operator":
            assert isinstance(message, OperatorAnswer)
            self.operator_answers.append(message)
            return
        if role == "broker":
            self.told_parent.append(message)
            return
        router = self.routers[name]
        if not router.is_connected:
            return
        match message:
            case RouterAccepted():
                router.accepted.append(message)
            case ChangeTable():
                self._change(router, message)
            case Return():
                key = message.endpoint, message.request_id
                self.answers[key] = _OUTCOMES.decode(message.body).outcomes
                self.answered_by.append((name, *key))
                self.answered_at.setdefault(key, len(self.journal))
            case Push():
                notice = _NOTICES.decode(message.body)
                self.notices.setdefault(message.endpoint, []).append(notice)
            case ChannelSeed():
                router.seeds.append(message)
                if message.first_epoch < 0 and not router.is_silent:
                    self.hear(name, seed_accepted(message))
            case DetachEndPoint():
                self.detached.append((name, message.endpoint))
            case _:
                raise AssertionError(message)

    def _change(self, router: FakeRouter, change: ChangeTable) -> None:
        router.changes.append(change)
        table = router.table
        check_soundness(table, change)
        table.apply(change)
        refused = {each: why for each, why in router.refused.items() if each in table.variables}
        message = TableChanged(number=change.number, digest=table.digest, refused=refused)
        if router.is_silent:
            router.unconfirmed.append(message)
        elif change.is_last:
            self.tell(Received(router.peer, message))


def seed_accepted(message: ChannelSeed) -> SeedAccepted:
    """The answer of a receiving router to a seed."""
    return SeedAccepted(channel_id=message.channel_id, number=message.number, first_epoch=7)


def pair(
    *,
    settings: BrokerSettings | None = None,
    bandwidth_bytes_per_s: int = 0,
    security: Security | None = None,
) -> Conversation:
    """A publisher at e0 and e1, and a subscriber at e2 and e3."""
    topology = ring(bandwidth_bytes_per_s=bandwidth_bytes_per_s, security=security)
    found = Conversation(topology, settings=settings).start()
    found.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    found.attach(CENTRE, "c1/e2", "c1/e3")
    return found


def refusal(outcomes: Sequence[Outcome]) -> RefusedOutcome:
    return Conversation.only(RefusedOutcome, outcomes)
