"""A simulated broker anywhere in a tree: the real machine, its journal, and its failpoints.

A process ends between two instructions: before or after it sends a message, before or after an
operation is on the disk. `killer` decides when.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from gridstat.broker.capacity.admission import Limit
from gridstat.broker.context import Outside
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.net.command.machine import Persist, Persisted, PersistFailed, Received, Send
from gridstat.net.command.router_messages import Return
from gridstat.net.command.segment_messages import NotReserved, Reserved
from gridstat.net.command.tree_messages import TreeMessageBase
from lab.simulation.broker_node import FAILED_NOTES, FAILED_NS, PlainVerifier
from lab.simulation.compaction import check_compaction
from lab.simulation.node import Node
from lab.simulation.properties.answers import DURABLE
from lab.simulation.tree.properties.records import check_readable
from lab.simulation.tree.properties.talk import Talk
from lab.simulation.world import WALL_NS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.tree.tree_settings import TreeSettings
    from gridstat.net.command.machine import Event, Instruction, Note
    from lab.simulation.journal import SimulatedJournal
    from lab.simulation.network import Network
    from lab.tree_plan import BrokerPlan

LOST_NOTES: Final = frozenset({"journal_out_of_order", "message_failed"})


class Broker(Protocol):
    """Interface that leaf and QoS brokers have in common."""

    def restore(self, written: Sequence[bytes]) -> None: ...
    def start(self, now_ns: int) -> list[Instruction]: ...
    def handle(self, event: Event, now_ns: int) -> list[Instruction]: ...


def parent_term_of(broker: Broker | None, parent: str) -> int:
    """Return the highest term of this parent that a broker keeps."""
    if isinstance(broker, LeafBroker):
        return broker.registry.tree.term_of(parent)
    placed = broker.state.placed if isinstance(broker, QosBroker) else None
    return placed.term if placed is not None and placed.is_below(parent) else 0


def term_of(broker: Broker) -> int:
    """Return the term of a broker above clouds."""
    assert isinstance(broker, QosBroker)
    return broker.state.term


class Killed(Exception):  # noqa: N818 — it is an end, not an error.
    """End of a process before its next instruction."""


class Killer(Protocol):
    """Decision whether a broker dies at an instruction; raises `Killed` if so."""

    def before(self, node: TreeBrokerNode, instruction: Send | Persist) -> None: ...
    def after(self, node: TreeBrokerNode, instruction: Send | Persist) -> None: ...


class TreeBrokerNode(Node):
    """Broker that restarts from its journal; `make` builds the machine of a new process.

    An impostor is a broker that does not know that another process has taken its journal.
    """

    role = "broker"
    doing: ClassVar[dict[type, str]] = {**Node.doing, Persist: "_persist"}

    def __init__(
        self, network: Network, plan: BrokerPlan, journal: SimulatedJournal, number: int
    ) -> None:
        super().__init__(network, plan.name, number)
        self.plan = plan
        self.journal = journal
        self.make: Callable[[Outside], Broker] | None = None
        self.broker: Broker | None = None
        self.killer: Killer | None = None
        self.on_killed: Callable[[TreeBrokerNode], None] | None = None
        self.on_ordered: Callable[[TreeBrokerNode, object], None] | None = None
        """Called with each message of the parent, before the broker has it."""
        self.on_restored: Callable[[TreeBrokerNode], None] | None = None
        self.on_returned: Callable[[TreeBrokerNode, bytes], None] | None = None
        self.on_sent: Callable[[object], None] | None = None
        """Called with each message to another broker, before it is sent."""
        self.settings_above: TreeSettings | None = None
        """Settings of a broker above clouds."""
        self.lives = 0
        self.clock_offset_ns = 0
        self.talk = Talk(self)
        self.refused_late_ns: dict[str, int] = {}
        """When a contract was last refused here since it, or another one, would be late."""
        self.is_impostor = False
        self.term_highest = 0
        """Highest term of all messages that it ever sent."""
        self._parent_term = 0
        self._is_receiving_stale = False
        self._is_ordered_by_stale = False

    def start(self) -> None:
        """Begin a process from the content of the journal; dial the parent, if there is one."""
        broker = self.broker = self._new_broker(self.world.random_bytes)
        broker.restore(self.journal.durable)
        self.journal.check_compacted = self._check_compacted
        self.lives += 1
        if self.on_restored is not None:
            self.on_restored(self)
        self._parent_term = 0
        self.begin(broker)
        self._guarded(self.do_all, broker.start(self.world.now_ns))
        if self.is_up and self.plan.parent:
            self.network.connect(self, f"broker/{self.plan.parent}")

    def _new_broker(self, random_bytes: Callable[[int], bytes] = bytes) -> Broker:
        assert self.make is not None
        outside = Outside(
            PlainVerifier(),
            self._wall_clock_ns,
            new_identity=self._journal_identity,
            random_bytes=random_bytes,
        )
        return self.make(outside)

    def _check_compacted(self, before: Sequence[bytes], compacted: Sequence[bytes]) -> None:
        check_compaction(self.name, self._new_broker, before, compacted)

    def crash(self, *, is_sudden: bool) -> None:
        super().crash(is_sudden=is_sudden)
        if not self.is_impostor:
            self.journal.crash()
        self.broker = None

    def durable_term(self) -> int:
        """Return the highest term in the journal."""
        broker = self._new_broker()
        broker.restore(self.journal.durable)
        return broker.registry.term if isinstance(broker, LeafBroker) else term_of(broker)

    def become_impostor(self) -> None:
        self.is_impostor = True
        self.killer = None
        for order in self.journal.abandon():
            self._fail_later(order)

    def _fail_later(self, order: Persist) -> None:
        failed = PersistFailed(order.token, "the journal is locked")
        self.world.after(FAILED_NS, self.tell, failed)

    def tell(self, event: object) -> None:
        self._look_at_term(event)
        if self._is_working or self.killer is None:
            super().tell(event)
        else:
            self._guarded(self._receive, event)
        self._is_receiving_stale = self._is_ordered_by_stale = False

    def _look_at_term(self, event: object) -> None:
        """Note whether a message comes from an older parent than one received before."""
        if type(event) is Received and event.peer == f"broker/{self.plan.parent}":
            message = event.message
            if self.on_ordered is not None:
                self.on_ordered(self, message)
            if isinstance(message, TreeMessageBase):
                self._is_receiving_stale = message.term < self._parent_term
                self._parent_term = max(self._parent_term, message.term)
                known = parent_term_of(self.broker, self.plan.parent)
                self._is_ordered_by_stale = message.term < known
        elif type(event) is Received and isinstance(event.message, TreeMessageBase):
            self.talk.received(event.peer, event.message)

    def _check_not_obeying(self) -> None:
        if self._is_ordered_by_stale and self._is_working:
            raise PropertyBroken("terms only grow", f"{self.name} does what a stale parent says")

    def _receive(self, event: object) -> None:
        if self.killer is not None and type(event) is Persisted:
            self.killer.after(self, Persist(event.token, ()))
        super().tell(event)

    def _guarded(self, action: Callable[..., None], *arguments: object) -> None:
        try:
            action(*arguments)
        except Killed:
            self.crash(is_sudden=False)
            if self.on_killed is not None:
                self.on_killed(self)

    def _wall_clock_ns(self) -> int:
        return WALL_NS + self.world.now_ns + self.clock_offset_ns

    def _journal_identity(self) -> str:
        """Return an identity that is not random, so that a seed always gives the same messages."""
        return f"{self.name} {self.world.now_ns}"

    def _send(self, instruction: Send) -> None:
        if self.killer is not None:
            self.killer.before(self, instruction)
        self._check_not_obeying()
        message = instruction.message
        if isinstance(message, TreeMessageBase):
            self.talk.sent(instruction.peer, message)
            if self._is_receiving_stale and instruction.peer == f"broker/{self.plan.parent}":
                raise PropertyBroken("terms only grow", f"{self.name} obeys a stale parent")
            if message.term < self.term_highest:
                raise PropertyBroken(
                    "terms only grow", f"{self.name} says {message} after {self.term_highest}"
                )
            self.term_highest = message.term
            if self.on_sent is not None:
                self.on_sent(message)
            if type(message) is Reserved and not self.is_impostor:
                self._check_written(message)
            elif type(message) is NotReserved and message.limit == Limit.LATENCY.name:
                self.refused_late_ns[message.contract] = self.world.now_ns
        elif type(message) is Return and self.on_returned is not None and not self.is_impostor:
            self.on_returned(self, message.body)
        super()._send(instruction)
        if self.killer is not None:
            self.killer.after(self, instruction)

    def _check_written(self, message: Reserved) -> None:
        """Check that a reported segment is on the cloud's disk, unless it is being released."""
        if isinstance(self.broker, LeafBroker):
            number = self.broker.registry.tree.segment(message.contract, message.generation)
            if number and number not in self.journal.facts.subscribed:
                raise PropertyBroken(DURABLE, f"{self.name} holds {message.contract}, unwritten")

    def _persist(self, order: Persist) -> None:
        if self.is_impostor:
            self._fail_later(order)
            return
        if self.killer is not None:
            self.killer.before(self, order)
        self._check_not_obeying()
        check_readable(self.name, self.broker, order.operations)
        self.journal.persist(order, self)

    def note(self, instruction: Note) -> None:
        super().note(instruction)
        facts = dict(instruction.facts)
        if instruction.word == "not_replanned" and "µs" in str(facts["reason"]):
            self.refused_late_ns[str(facts["contract"])] = self.world.now_ns
        if instruction.word in FAILED_NOTES or instruction.word in LOST_NOTES:
            raise PropertyBroken("machines do not fail", f"{self.name}: {facts}")
