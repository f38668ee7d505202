"""Brokers above clouds with stand-in clouds below them, joined by sessions in memory.

Every message goes through its bytes, and whatever is written can be read; sessions keep order and
lose what is on its way when they end; journals survive a kill, and time passes only when a test
says so.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec

from gridstat.broker.context import Outside
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.status import BuiltinType, StatusVariable
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
from gridstat.net.command.messages import Hello, Message
from gridstat.net.command.operator_messages import OperatorAnswer
from lab.simulation.tree.properties.records import check_readable
from tests.unit.broker.stand_ins import EVERY_MODE, PlainVerifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.model.channel_security import Security
    from gridstat.net.command.machine import Event, Instruction
    from tests.unit.broker.tree.cloud_stand_in import CloudStandIn

_MESSAGES: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)


def hello(peer: str) -> Hello:
    role, _, name = peer.partition("/")
    return Hello(role=role, name=name, instance="1")


def through_bytes(message: Message) -> Message:
    return _MESSAGES.decode(msgspec.msgpack.encode(message))


def variable(name: str, number: int, per_second: int = 50) -> StatusVariable:
    return StatusVariable(VariableId(number), name, BuiltinType.FLOAT64, Period(1, per_second))


def channel(from_router: str, to_router: str, **facts: Any) -> EventChannel:
    facts.setdefault("latency_us", 500)
    security: Security = "none" if "bandwidth_bytes_per_s" in facts else "hop"
    return EventChannel(ChannelId(0), from_router, to_router, security=security, **facts)


def both_ways(one: str, other: str, **facts: Any) -> list[EventChannel]:
    return [channel(one, other, **facts), channel(other, one, **facts)]


class Process:
    """A QoS broker that can be killed: what it has written is all that a new one knows."""

    def __init__(
        self, settings: TreeSettings, children: Sequence[str], channels: Sequence[EventChannel]
    ) -> None:
        self.settings = settings
        self.children = children
        self.channels = channels
        self.written: list[bytes] = []
        self.written_lengths: list[int] = []
        self.timers: dict[str, int] = {}
        self.writing: deque[Persist] = deque()
        self.answers: dict[int, OperatorAnswer] = {}
        self.notes: list[Note] = []
        self.machine = self.new_broker()

    def new_broker(self) -> QosBroker:
        outside = Outside(PlainVerifier(), lambda: 0)
        return QosBroker(self.settings, outside, self.children, self.channels)

    def restart(self) -> None:
        self.timers.clear()
        self.writing.clear()
        self.machine = self.new_broker()
        self.machine.restore(self.written)


class TreeWorld:
    """All brokers and clouds; `cut` holds pairs whose session is down and stays so."""

    def __init__(
        self,
        brokers: Mapping[str, tuple[str, Sequence[str], Sequence[EventChannel]]],
        clouds: Iterable[CloudStandIn],
        settings: TreeSettings | None = None,
    ) -> None:
        self.now_ns = 0
        base = settings or TreeSettings(name="", modes_defined=EVERY_MODE)
        self.brokers = {
            name: Process(
                replace(base, name=name, parent=parent),
                children,
                channels,
            )
            for name, (parent, children, channels) in brokers.items()
        }
        self.clouds = {cloud.name: cloud for cloud in clouds}
        self.parents = {name: process.settings.parent for name, process in self.brokers.items()}
        for name, process in self.brokers.items():
            for child in process.children:
                self.parents.setdefault(child, name)
        self.up: set[str] = set()
        self.cut: set[str] = set()
        """Children whose session with their parent is down."""
        self.sent: list[tuple[str, str, Message]] = []
        self.queue: deque[tuple[str, str, Message]] = deque()
        self.closed: list[tuple[str, str]] = []
        self.may_fail = False
        """Whether a broker may fail on a message; else a failure fails the test."""
        self.kill_after: dict[str, int] = {}
        """Broker → how many more instructions it carries out before it is killed."""
        self.are_last_words_heard = False
        """Whether the last messages of a killed broker arrive, or are lost."""
        self.fail_writes: dict[str, set[int]] = {}
        """Broker → which of its next writes fail."""
        self._requests = count(1)

    # Time and sessions.

    def start(self) -> TreeWorld:
        for name in self.brokers:
            self._do(name, self.brokers[name].machine.start(self.now_ns))
        self.connect_all()
        self.settle()
        return self

    def connect_all(self) -> None:
        for child, parent in self.parents.items():
            if parent and child not in self.up and child not in self.cut:
                self._connect(child, parent)

    def disconnect(self, child: str) -> None:
        if child not in self.up:
            return
        self.up.discard(child)
        parent = self.parents[child]
        ends = {(child, parent), (parent, child)}
        self.queue = deque(one for one in self.queue if (one[0], one[1]) not in ends)
        for name, peer in ((parent, child), (child, parent)):
            self._tell(name, Disconnected(f"broker/{peer}"))

    def kill(self, name: str) -> None:
        """Kill a broker and start it again at once; sessions come back with `settle`."""
        if self.are_last_words_heard:
            said = [one for one in self.queue if one[0] == name]
            self.queue = deque(one for one in self.queue if one[0] != name)
            for _, receiver, message in said:
                self._tell(receiver, Received(f"broker/{name}", through_bytes(message)))
        for child, parent in list(self.parents.items()):
            if name in {child, parent} and child in self.up:
                other = parent if name == child else child
                self.up.discard(child)
                ends = {(name, other), (other, name)}
                self.queue = deque(one for one in self.queue if (one[0], one[1]) not in ends)
                self._tell(other, Disconnected(f"broker/{name}"))
        if name in self.clouds:
            self.clouds[name].restart()
            return
        self.brokers[name].restart()
        self._do(name, self.brokers[name].machine.start(self.now_ns))

    def settle(self, rounds_max: int = 200_000) -> None:
        """Run until no message is pending; timers stand still."""
        for _ in range(rounds_max):
            self.connect_all()
            if not self.step():
                return
        raise AssertionError("the tree does not come to rest")

    def step(self) -> bool:
        for name, process in self.brokers.items():
            if process.writing:
                self._write(name)
                return True
        if not self.queue:
            return False
        sender, receiver, message = self.queue.popleft()
        self._tell(receiver, Received(f"broker/{sender}", through_bytes(message)))
        return True

    def advance(self, by_ns: int) -> None:
        """Let time pass, timer by timer."""
        until_ns = self.now_ns + by_ns
        while True:
            due = [
                (at_ns, name, timer)
                for name, process in self.brokers.items()
                for timer, at_ns in process.timers.items()
                if at_ns <= until_ns
            ]
            if not due:
                break
            at_ns, name, timer = min(due)
            self.now_ns = max(self.now_ns, at_ns)
            del self.brokers[name].timers[timer]
            self._tell(name, TimerFired(timer))
            self.settle()
        self.now_ns = until_ns

    def rest(self) -> None:
        """Run long enough for every repeated message."""
        self.settle()
        self.advance(60 * NS_PER_S)
        self.settle()

    # Operators.

    def operate(self, broker: str, command: Message) -> OperatorAnswer:
        number = next(self._requests)
        asked = msgspec.structs.replace(command, request_id=number)
        self._tell(broker, Connected("operator/op", hello("operator/op")))
        self._tell(broker, Received("operator/op", asked))
        self.settle()
        return self.brokers[broker].answers[number]

    # Carrying out.

    def _connect(self, child: str, parent: str) -> None:
        self.up.add(child)
        self._tell(parent, Connected(f"broker/{child}", hello(f"broker/{child}")))
        self._tell(child, Connected(f"broker/{parent}", hello(f"broker/{parent}")))

    def _tell(self, name: str, event: Event) -> None:
        if name in self.clouds:
            cloud = self.clouds[name]
            for message in cloud.handle(event):
                self.post(name, cloud.parent, message)
            return
        process = self.brokers[name]
        self._do(name, process.machine.handle(event, self.now_ns))

    def post(self, sender: str, receiver: str, message: Message) -> None:
        child = sender if self.parents.get(sender) == receiver else receiver
        if child in self.up:
            self.queue.append((sender, receiver, message))
            self.sent.append((sender, receiver, message))

    def _do(self, name: str, instructions: Iterable[Instruction]) -> None:
        process = self.brokers[name]
        machine = process.machine
        for instruction in instructions:
            if process.machine is not machine:
                return
            if isinstance(instruction, Send) and self._is_killed(name):
                return
            self._carry_out(name, instruction)

    def _carry_out(self, name: str, instruction: Instruction) -> None:
        process = self.brokers[name]
        match instruction:
            case Send(peer=peer, message=message):
                role, _, other = peer.partition("/")
                if role == "operator":
                    assert isinstance(message, OperatorAnswer)
                    process.answers[message.request_id] = message
                else:
                    self.post(name, other, message)
            case Persist():
                check_readable(name, process.machine, instruction.operations)
                process.writing.append(instruction)
            case SetTimer(name=timer, after_ns=after_ns):
                process.timers[timer] = self.now_ns + after_ns
            case CancelTimer(name=timer):
                process.timers.pop(timer, None)
            case Close(peer=peer, reason=reason):
                self.closed.append((peer, reason))
                _, _, other = peer.partition("/")
                child = name if self.parents.get(name) == other else other
                self.cut.add(child)
                self.disconnect(child)
            case Note():
                process.notes.append(instruction)
                assert instruction.word != "message_failed" or self.may_fail, instruction

    def _write(self, name: str) -> None:
        process = self.brokers[name]
        order = process.writing.popleft()
        left = self.fail_writes.get(name)
        if left is not None:
            self.fail_writes[name] = {at - 1 for at in left}
            if 0 in left:
                self._tell(name, PersistFailed(order.token, "disk full"))
                return
        if self._is_killed(name):
            return  # Not written at all.
        process.written.extend(order.operations)
        process.written_lengths.append(len(process.written))
        if not self._is_killed(name):
            self._tell(name, Persisted(order.token))

    def _is_killed(self, name: str) -> bool:
        """Return whether the broker is killed at this point, and kill it then."""
        if name not in self.kill_after:
            return False
        self.kill_after[name] -= 1
        if self.kill_after[name] >= 0:
            return False
        del self.kill_after[name]
        self.kill(name)
        return True

    # What is wanted of contracts.

    def subscribe(
        self, subscriber: str, name: str, number: int = 1, generation: int = 0, **qos: int
    ) -> str:
        """A cloud asks; the contract's name."""
        cloud = self.clouds[subscriber.partition("/")[0]]
        asked = cloud.ask(subscriber, name, number, generation, qos_of(**qos))
        self.say(cloud.name)
        return asked

    def end(self, contract: str) -> None:
        cloud = self.clouds[contract.partition("#")[0]]
        cloud.end(contract)
        self.say(cloud.name)

    def say(self, name: str) -> None:
        """Send all pending messages of a cloud to its parent."""
        for message in self.clouds[name].flush():
            self.post(name, self.clouds[name].parent, message)


def qos_of(**qos: Any) -> ModalQos:
    return ModalQos({0: replace(QosRequest(), **qos)})
