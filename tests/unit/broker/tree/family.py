"""A tree of real brokers in memory: leaf brokers with stand-in routers, QoS brokers above them.

No socket and no clock. Words between brokers go through one queue, each through its bytes; a
broker can be killed and comes back with its journal.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gridstat.broker.context import Outside
from gridstat.broker.records.operations import SNAPSHOT_MARK
from gridstat.broker.settings import BrokerSettings
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Disconnected,
    Note,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.messages import Hello, Message, OperatorAnswer, OperatorCommand
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.stand_ins import EVERY_MODE, WALL_NS, PlainVerifier

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.operator_messages import TreeCommand

_MESSAGES: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(Message)
STEP_NS = 10_000_000
DEFAULTS = (
    BrokerSettings("", modes_defined=EVERY_MODE),
    TreeSettings("", modes_defined=EVERY_MODE),
)
"""Settings of leaf and QoS brokers; names and parents are filled in."""


class QosNode:
    """A QoS broker and its journal; `said` are its messages to other brokers."""

    def __init__(
        self, settings: TreeSettings, children: Sequence[str], channels: Iterable[EventChannel]
    ) -> None:
        self.settings = settings
        self._children = tuple(children)
        self._channels = tuple(channels)
        self.journal: list[bytes] = []
        self.written_lengths: list[int] = []
        self.now_ns = 0
        self.timers: dict[str, int] = {}
        self.said: list[tuple[str, Message]] = []
        self.answers: list[OperatorAnswer] = []
        self.notes: list[Note] = []
        self.closed: list[Close] = []
        self.broker = self.new_broker()

    def new_broker(self) -> QosBroker:
        outside = Outside(PlainVerifier(), lambda: WALL_NS + self.now_ns)
        return QosBroker(self.settings, outside, self._children, self._channels)

    def kill(self) -> None:
        self.timers.clear()
        self.said.clear()
        self.broker = self.restored()

    def restored(self) -> QosBroker:
        """Another one with all that this has written."""
        found = self.new_broker()
        found.restore(self.journal)
        return found

    def tell(self, event: Event) -> None:
        self.carry_out(self.broker.handle(event, self.now_ns))

    def start(self) -> None:
        self.carry_out(self.broker.start(self.now_ns))

    def advance(self, by_ns: int) -> None:
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
            match instruction:
                case Send(peer=peer, message=message):
                    self._send(peer, message)
                case Persist(token=token, operations=operations):
                    if operations and operations[0] == SNAPSHOT_MARK:
                        self.journal.clear()
                    self.journal.extend(operations)
                    self.written_lengths.append(len(self.journal))
                    self.tell(Persisted(token))
                case SetTimer(name=name, after_ns=after_ns):
                    self.timers[name] = self.now_ns + after_ns
                case CancelTimer(name=name):
                    self.timers.pop(name, None)
                case Close():
                    self.closed.append(instruction)
                case Note():
                    self.notes.append(instruction)
                    assert instruction.word != "message_failed", instruction

    def _send(self, peer: str, message: Message) -> None:
        role, _, name = peer.partition("/")
        if role == "operator":
            assert isinstance(message, OperatorAnswer)
            self.answers.append(message)
        else:
            self.said.append((name, message))


class Family:
    """All brokers by name; `parents` says who is above whom, the root is above all."""

    def __init__(
        self,
        parents: Mapping[str, str],
        inside: Mapping[str, Sequence[tuple[str, str]]],
        between: Mapping[str, Sequence[tuple[str, str]]],
        *,
        bandwidths: Mapping[tuple[str, str], int] | None = None,
        settings: tuple[BrokerSettings, TreeSettings] = DEFAULTS,
    ) -> None:
        self.parents = dict(parents)
        self._leaf_settings, tree_settings = settings
        self._bandwidths = bandwidths or {}
        self._queue: deque[tuple[str, str, Message]] = deque()
        self.cut: set[str] = set()
        """Children whose session with their parent is down, and stays so."""
        self.leaves = {name: self._leaf(name, ways) for name, ways in inside.items()}
        names = {*parents, *parents.values()} - inside.keys()
        self.brokers = {
            name: QosNode(
                replace(tree_settings, name=name, parent=self.parents.get(name, "")),
                [child for child, parent in parents.items() if parent == name],
                [self._channel(0, way) for way in between.get(name, ())],
            )
            for name in sorted(names)
        }

    def _leaf(self, cloud: str, ways: Sequence[tuple[str, str]]) -> Conversation:
        names = sorted({name for way in ways for name in way})
        routers = [Router(name, RouterRole.EDGE) for name in names]
        channels = [self._channel(number, way) for number, way in enumerate(ways, start=1)]
        settings = replace(self._leaf_settings, cloud=cloud, parent=self.parents[cloud])
        found = Conversation((routers, channels), settings=settings)
        for at, name in enumerate(names):
            found.routers[name].port = 10_000 + 1_000 * len(cloud) + 10 * at
        return found

    def _channel(self, number: int, way: tuple[str, str]) -> EventChannel:
        return EventChannel(
            ChannelId(number),
            *way,
            bandwidth_bytes_per_s=self._bandwidths.get(way, 0),
            security="none" if way in self._bandwidths else "hop",
        )

    # Their life.

    def start(self) -> Family:
        for node in self.brokers.values():
            node.start()
        for leaf in self.leaves.values():
            leaf.start()
        for child in self.parents:
            self.connect(child)
        self.settle()
        return self

    def connect(self, child: str) -> None:
        """A session of a child with its parent begins, if there can be one."""
        if child in self.cut:
            return
        parent = self.parents[child]
        for one, other in ((parent, child), (child, parent)):
            hello = Hello(role="broker", name=other, instance="1")
            self._tell(one, Connected(f"broker/{other}", hello))

    def disconnect(self, child: str) -> None:
        parent = self.parents[child]
        self._gather()
        self._queue = deque(word for word in self._queue if {word[0], word[1]} != {child, parent})
        self._tell(parent, Disconnected(f"broker/{child}"))
        self._tell(child, Disconnected(f"broker/{parent}"))

    def separate(self, *children: str) -> None:
        """Separate children from their parents until `heal`; messages in transit are lost."""
        for child in children:
            self.cut.add(child)
            self.disconnect(child)

    def heal(self) -> None:
        apart, self.cut = sorted(self.cut), set()
        for child in apart:
            self.connect(child)
        self.settle()

    def kill(self, name: str) -> None:
        """Like kill -9; it is back at once, with what its journal holds."""
        near = [
            (child, parent) for child, parent in self.parents.items() if name in (child, parent)
        ]
        self._gather()
        self._queue = deque(word for word in self._queue if name not in word[:2])
        for child, parent in near:
            other = parent if child == name else child
            if child not in self.cut:
                self._tell(other, Disconnected(f"broker/{name}"))
        if name in self.brokers:
            self.brokers[name].kill()
            self.brokers[name].start()
        else:
            self.leaves[name].told_parent.clear()
            self.leaves[name].kill_broker()
            self.leaves[name].start()
        for child, _ in near:
            self.connect(child)

    # Words.

    def operate(self, broker: str, command: OperatorCommand | TreeCommand) -> OperatorAnswer:
        """Ask a broker, and let everything happen."""
        self.ask(broker, command)
        self.settle()
        return self.answers(broker)[-1]

    def ask(self, broker: str, command: OperatorCommand | TreeCommand) -> None:
        self._tell(broker, Received("operator/alice", command))

    def answers(self, broker: str) -> list[OperatorAnswer]:
        if broker in self.leaves:
            return self.leaves[broker].operator_answers
        return self.brokers[broker].answers

    def settle(self) -> None:
        """Run until no broker sends anything for a while."""
        for _ in range(200):
            while self.step():
                pass
            for node in self._nodes():
                node.advance(STEP_NS)
            self._gather()
            if not self._queue and not any(
                leaf.timers.keys() & {"flush"} for leaf in self.leaves.values()
            ):
                return
        raise AssertionError(f"no end: {list(self._queue)[:3]}")

    def pass_time(self, by_ns: int) -> None:
        for node in self._nodes():
            node.advance(by_ns)
        self.settle()

    def step(self) -> bool:
        """Deliver one message between brokers; return whether there was one."""
        self._gather()
        if not self._queue:
            return False
        sender, receiver, message = self._queue.popleft()
        child = sender if self.parents.get(sender) == receiver else receiver
        assert child not in self.cut, f"{sender} speaks to {receiver} without a session"
        said = _MESSAGES.decode(msgspec.msgpack.encode(message))
        self._tell(receiver, Received(f"broker/{sender}", said))
        return True

    @property
    def waiting(self) -> list[tuple[str, str, Message]]:
        """Return the messages between brokers in transit."""
        return list(self._queue)

    def _nodes(self) -> list[QosNode | Conversation]:
        return [*self.brokers.values(), *self.leaves.values()]

    def _gather(self) -> None:
        for name, node in self.brokers.items():
            self._queue.extend((name, to, message) for to, message in node.said)
            node.said.clear()
        for name, leaf in self.leaves.items():
            self._queue.extend((name, self.parents[name], word) for word in leaf.told_parent)
            leaf.told_parent.clear()

    def _tell(self, name: str, event: Event) -> None:
        node = self.brokers[name] if name in self.brokers else self.leaves[name]
        node.tell(event)
