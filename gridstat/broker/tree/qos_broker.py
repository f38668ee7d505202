"""QoS broker: the state machine of every broker above clouds (S0 §2.2.3).

States of the broker:

    new --restore, any number of times--> new
    new --start, or the first event--> starting: the next term is being written
    starting --durable--> running
    starting --the journal fails--> starting, again after `retry_after_ns`

While starting, connections and messages are kept and handled once the term is durable. While
running, `handle` takes one event (a message, a timer, a write that has ended) and returns
instructions: messages to send, timers to set, operations to write. A message leaves only after the
operations that it depends on are durable.

Peers are children, the parent and operators. Routers and end-points belong to the leaf brokers.
A restart replays the journal; each capability then continues its unfinished work.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final

from gridstat.broker.capability import merged
from gridstat.broker.records.number_ranges import last_of_lost_terms
from gridstat.broker.tree.components import Components
from gridstat.broker.tree.tree_context import LATER_TIMER
from gridstat.broker.tree.tree_dispatcher import TreeDispatcher
from gridstat.broker.tree.tree_operations import BlockGiven, TreeTermBegan, encode, operations_of
from gridstat.model.errors import NotAuthorised
from gridstat.net.command.machine import (
    Connected,
    Disconnected,
    Persisted,
    PersistFailed,
    Received,
    TimerFired,
)
from gridstat.net.command.operator_messages import OperatorCommand, TreeCommand

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gridstat.broker.context import Outside
    from gridstat.broker.tree.tree_operations import TreeOperation
    from gridstat.broker.tree.tree_settings import TreeSettings
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.machine import Event, Instruction
    from gridstat.net.command.tree_messages import TreeMessageBase

START_TIMER: Final = "start"
EARLY_EVENTS_MAX: Final = 100_000


class Phase(Enum):
    """Phase of a broker's life; the module's docstring draws the transitions."""

    NEW = auto()
    STARTING = auto()
    RUNNING = auto()


class QosBroker:
    """Pure state machine of one broker.

    `children` are names of brokers. `channels` connect routers below different children; the broker
    numbers them in their order at the first start, and each keeps its number.
    """

    def __init__(
        self,
        settings: TreeSettings,
        outside: Outside,
        children: Iterable[str],
        channels: Iterable[EventChannel],
    ) -> None:
        self.parts = Components(settings, outside, children, channels, self)
        """Components of the broker, which tests and the simulator inspect."""
        self.state = self.parts.state
        self._context = self.parts.context
        self._capabilities = self.parts.capabilities
        self._dispatcher = TreeDispatcher(self._context, self.parts.membership, self._capabilities)
        own: dict[str, Callable[[], None]] = {
            START_TIMER: self._begin,
            LATER_TIMER: self._context.try_again,
        }
        self._timers = merged([("broker", own), ("capabilities", self._capabilities.timers)])
        self._phase = Phase.NEW
        self._term_restored = 0
        self._early_events: list[Event] = []
        """Connections and messages to handle once the term is durable."""

    def restore(self, written: Sequence[bytes]) -> None:
        """Replay a part of the journal; further parts may follow."""
        assert self._phase is Phase.NEW, "a broker is restored before it starts"
        for operation in operations_of(written, self.operation_types):
            self.state.replay(operation)
        self._context.restored(len(written))

    def snapshot(self) -> list[bytes]:
        """Return the state as operations, including decisions that are not durable yet."""
        return [encode(operation) for operation in self.state.operations()]

    @property
    def operation_types(self) -> tuple[type[TreeOperation], ...]:
        """Types of the operations in the journal, as the capabilities have registered them."""
        return self._capabilities.operation_types

    @property
    def open_count(self) -> int:
        """Number of contracts and segments that are being planned and reserved."""
        return len(self.parts.coordinator)

    def survey(self) -> dict[str, Any]:
        """Return the facts of the scope, for metrics and for operators."""
        return self._capabilities.survey()

    def start(self, now_ns: int) -> list[Instruction]:
        """Begin a new term; otherwise `handle` does so at its first event."""
        self._context.begin_turn(now_ns)
        self._begin()
        return self._context.end_turn()

    def handle(self, event: Event, now_ns: int) -> list[Instruction]:
        self._context.begin_turn(now_ns)
        if self._phase is Phase.NEW:
            self._begin()
        is_of_peer = isinstance(event, Connected | Disconnected | Received)
        if self._phase is Phase.STARTING and is_of_peer:
            if len(self._early_events) < EARLY_EVENTS_MAX:
                self._early_events.append(event)
            return self._context.end_turn()
        self._handle(event)
        self._context.compact_if_due(self._context.settings.snapshot_after, self.state.operations)
        return self._context.end_turn()

    def handle_parent_message(self, message: TreeMessageBase) -> None:
        """Dispatch a message of the parent that was kept until this broker's place was durable."""
        self._dispatcher.receive_from_parent(message)

    def _begin(self) -> None:
        """Write a higher term before any message is sent."""
        if self._phase is Phase.NEW:
            self._phase = Phase.STARTING
            self._term_restored = self.state.term  # Writes that fail do not take a term back.
        term = max(self.state.term + 1, self._context.settings.term_min)
        # An identity is drawn once in the life of a journal, so that a parent notices its loss.
        journal = "" if self._context.has_journal else self._context.outside.new_identity()
        orphaned = [] if self._context.has_parent else self._capabilities.orphaned(term)
        self._context.decide(
            [
                TreeTermBegan(term=term, journal=journal),
                *self._range_of(term),
                *self.state.numbering(),
                *orphaned,
            ],
            self._begun,
            self._not_begun,
        )

    def _range_of(self, term: int) -> list[TreeOperation]:
        """Return the operation that lets a root whose journal is lost give out other identifiers.

        It does not know which of them are in use below it.
        """
        is_root = not self._context.has_parent and not self.state.tree
        is_raised = self._context.settings.term_min > self._term_restored + 1
        if not is_raised or not is_root:
            return []
        return [BlockGiven(child="", request=0, first=1, count=last_of_lost_terms(term))]

    def _not_begun(self, reason: str) -> None:
        del reason
        self._context.set_timer(START_TIMER, self._context.settings.retry_after_ns)

    def _begun(self) -> None:
        self._phase = Phase.RUNNING
        early, self._early_events = self._early_events, []
        self._context.note("term_began", term=self.state.term)
        self._capabilities.resume()
        for event in early:
            self._handle(event)

    def _handle(self, event: Event) -> None:
        match event:
            case Received(peer=peer):
                self._receive(peer, event)
            case Persisted(token=token):
                self._context.persisted(token)
            case PersistFailed(token=token, reason=reason):
                self._context.persist_failed(token, reason)
            case TimerFired(name=name):
                fired = self._timers.get(name)
                if fired is not None:
                    fired()
                else:
                    self._capabilities.fire_named(name)
            case Connected(peer=peer):
                self._connect(peer)
            case Disconnected(peer=peer):
                role, _, name = peer.partition("/")
                if role == "broker":
                    self.parts.membership.disconnect(name)

    def _connect(self, peer: str) -> None:
        role, _, name = peer.partition("/")
        if role == "broker":
            self.parts.membership.connect(name)
        elif role != "operator":
            self._context.close(
                peer,
                NotAuthorised(f"rule role: a {role} may not connect to a broker above clouds"),
            )

    def _receive(self, peer: str, event: Received) -> None:
        role, _, name = peer.partition("/")
        message = event.message
        if role == "operator" and isinstance(message, OperatorCommand | TreeCommand):
            self.parts.operators.take(peer, message)
        elif role != "broker" or not self._dispatcher.receive(name, message):
            kind = type(message).__name__
            self._context.close(
                peer, NotAuthorised(f"rule role: {peer} may not send {kind} to a broker")
            )
