"""The simulated leaf broker: the real machine, its journal, and checks that they agree."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final

from gridstat.broker.context import Outside
from gridstat.broker.leaf_broker import LeafBroker
from gridstat.net.command.endpoint_signatures import CertificateFacts
from gridstat.net.command.machine import Persist, PersistFailed, Send
from gridstat.net.command.router_messages import Push, Return
from lab.simulation.compaction import check_compaction
from lab.simulation.node import Node
from lab.simulation.rules import with_rules
from lab.simulation.topology import CLOUD
from lab.simulation.world import NS_PER_S, WALL_NS, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.settings import BrokerSettings
    from gridstat.net.command.machine import Note
    from lab.simulation.journal import SimulatedJournal
    from lab.simulation.network import Network
    from lab.simulation.topology import Topology

FAILED_NS: Final = 1_000_000
FAILED_NOTES: Final = frozenset({"request_failed", "message_failed"})
"""Notes of a broker that has met a bug and continues."""
REFUSALS_NOTED_MAX: Final = 10
"""Refusals of names to patterns that a broker notes in a second."""
GRACE_OVER: Final = "grace_is_over"
CERTIFICATE_END_S: Final = 2_000_000_000


class PlainVerifier:
    """Verifier whose certificates are `role/name` in plain bytes and signatures a message's length.

    Authorisation is not tested here; `tests/protocol` has real certificates.
    """

    def certificate(self, der: bytes) -> CertificateFacts:
        role, _, name = der.decode().partition("/")
        return CertificateFacts(role, name, der, CERTIFICATE_END_S)

    def signature(self, public_key: bytes, message: bytes, signature: bytes) -> bool:
        return signature == plain_signature(public_key, message)


def plain_signature(public_key: bytes, message: bytes) -> bytes:
    return public_key + len(message).to_bytes(4, "big")


class BrokerNode(Node):
    """Leaf broker that restarts from its journal; an impostor has lost its journal to another."""

    role = "broker"
    doing: ClassVar[dict[type, str]] = {**Node.doing, Persist: "_persist"}

    def __init__(
        self,
        network: Network,
        topology: Topology,
        settings: BrokerSettings,
        journal: SimulatedJournal,
        number: int,
    ) -> None:
        super().__init__(network, CLOUD, number)
        self.topology = topology
        self.settings = settings
        self.journal = journal
        self.broker: LeafBroker | None = None
        self.patterns_refused: set[int] = set()
        """Patterns that a name they match did not fit; the broker says so in its log."""
        self.are_refusals_left_out = False
        """Whether it has refused so many in a second that its log leaves some out."""
        self._refused_ns: deque[int] = deque(maxlen=REFUSALS_NOTED_MAX)
        self.clock_offset_ns = 0
        self.is_impostor = False
        self.on_restored: Callable[[LeafBroker], None] | None = None
        self.on_returned: Callable[[LeafBroker, bytes], None] | None = None
        self.on_pushed: Callable[[bytes], None] | None = None
        self.on_grace_over: Callable[[str], None] | None = None
        """Called with the name of an end-point that is ended for its absence."""

    def start(self) -> None:
        """Begin a process from the content of the journal."""
        broker = self.broker = self._new_broker(self.world.random_bytes)
        broker.restore(self.journal.durable)
        self.journal.check_compacted = self._check_compacted
        if self.on_restored is not None:
            self.on_restored(broker)
        self.begin(broker)
        self.do_all(broker.start(self.world.now_ns))

    def _new_broker(self, random_bytes: Callable[[int], bytes] = bytes) -> LeafBroker:
        outside = Outside(
            PlainVerifier(),
            self._wall_clock_ns,
            new_identity=self._journal_identity,
            random_bytes=random_bytes,
        )
        topology = self.topology
        return LeafBroker(
            with_rules(self.settings), outside, routers=topology.routers, channels=topology.channels
        )

    def _check_compacted(self, before: Sequence[bytes], compacted: Sequence[bytes]) -> None:
        check_compaction(self.name, self._new_broker, before, compacted)

    def crash(self, *, is_sudden: bool) -> None:
        super().crash(is_sudden=is_sudden)
        if not self.is_impostor:
            self.journal.crash()
        self.broker = None

    def lose_journal(self) -> None:
        """Lose the journal; the operator begins another one above all terms that were heard of."""
        before = self._new_broker()
        before.restore(self.journal.durable)
        self.settings = replace(
            self.settings, term_min=max(self.settings.term_min, before.registry.term + 1)
        )
        self.journal.lose()

    def become_impostor(self) -> None:
        """Continue as a process that does not know that another process has taken its journal."""
        self.is_impostor = True
        for order in self.journal.abandon():
            self.world.after(
                FAILED_NS, self.tell, PersistFailed(order.token, "the journal is locked")
            )

    def _wall_clock_ns(self) -> int:
        return WALL_NS + self.world.now_ns + self.clock_offset_ns

    def _journal_identity(self) -> str:
        """Return an identity that is not random, so that a seed always gives the same messages."""
        return f"{self.name} {self.world.now_ns}"

    def _send(self, instruction: Send) -> None:
        if (
            type(instruction.message) is Return
            and self.on_returned is not None
            and not self.is_impostor
            and self.broker is not None
        ):
            self.on_returned(self.broker, instruction.message.body)
        if type(instruction.message) is Push and self.on_pushed and not self.is_impostor:
            self.on_pushed(instruction.message.body)
        super()._send(instruction)

    def note(self, instruction: Note) -> None:
        super().note(instruction)
        if instruction.word == "pattern_refused":
            self.patterns_refused.add(int(dict(instruction.facts)["pattern_id"]))
            self._refused_ns.append(self.world.now_ns)
            if self.world.now_ns - self._refused_ns[0] < NS_PER_S:
                self.are_refusals_left_out |= len(self._refused_ns) == REFUSALS_NOTED_MAX
        if instruction.word == GRACE_OVER and self.on_grace_over and not self.is_impostor:
            self.on_grace_over(str(dict(instruction.facts)["endpoint"]))
        if instruction.word in FAILED_NOTES:
            raise PropertyBroken("machines do not fail", f"{self.name}: {dict(instruction.facts)}")

    def _persist(self, order: Persist) -> None:
        if self.is_impostor:
            self.world.after(
                FAILED_NS, self.tell, PersistFailed(order.token, "the journal is locked")
            )
        else:
            self.journal.persist(order, self)
