"""Convergence of the core to the wanted table, whatever is ordered, lost, repeated or refused.

Hypothesis plays the broker's orders and everything that can go wrong between it and the core.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from gridstat.model.errors import LimitReached
from gridstat.model.rate_law import Period
from gridstat.net.command.machine import Connected, Disconnected, Received, Send
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    ReportRouter,
    RouterAccepted,
    SourceOrder,
    TableChanged,
    TableRefused,
    VariableOrder,
)
from gridstat.net.command.session_messages import Hello
from gridstat.router import RouterAgent, RouterFacts, StatusRouter
from gridstat.router.core_work import CoreWork
from gridstat.router.forwarding_table import forwarding_rows
from gridstat.router.table_orders import carried_of, path_of
from tests.unit.router.recording_core import RecordingCore

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from gridstat.router.agent_events import RouterEvent

BROKER = "broker/c1"
MS = 1_000_000
IDENTIFIERS = st.integers(1, 2)


@dataclass(frozen=True)
class Want:
    """The broker wants, or no longer wants, some channel, source, variable or path."""

    kind: str
    key: int
    is_wanted: bool
    variant: int


@dataclass(frozen=True)
class Trouble:
    """Kind of failure, or passing of time."""

    word: str


Step: TypeAlias = Want | Trouble
TROUBLES = ["flush", "lose", "repeat", "cut", "tick", "unreachable", "full"]
WANTS = st.builds(
    Want,
    st.sampled_from(["channel", "source", "variable", "path"]),
    IDENTIFIERS,
    st.booleans(),
    st.integers(1, 3),
)
STEPS = st.lists(WANTS | st.builds(Trouble, st.sampled_from(TROUBLES)), min_size=2, max_size=20)


def changed(table: OrderTable, want: Want) -> ChangeTable | None:
    """Return the change that a broker would send for a want; None if it makes no sense now."""
    orders = wished(table, want) if want.is_wanted else given_up(table, want)
    return ChangeTable(term=1, number=0, **orders) if orders else None


def wished(table: OrderTable, want: Want) -> dict[str, Any]:
    key, variant = want.key, want.variant
    match want.kind:
        case "channel":
            address: dict[str, Any] = {"host": "::1", "data_port": variant, "urgent_port": 9}
            return {"channels": (ChannelOrder(channel_id=key, to="c1/x", **address),)}
        case "source":
            is_publisher = variant > 1
            source = SourceOrder(channel_id=key, sender="c1/y", is_publisher=is_publisher)
            return {"sources": (source,)}
        case "variable":
            period = Period(1, 30 * variant)
            return {"variables": (VariableOrder(variable_id=key, period=period),)}
        case _:
            if not table.channels or not table.variables:
                return {}
            path = PathOrder(
                path_id=key,
                variable_id=sorted(table.variables)[variant % len(table.variables)],
                channel_id=sorted(table.channels)[variant % len(table.channels)],
                every=variant,
            )
            return {"paths": (path,)}


def given_up(table: OrderTable, want: Want) -> dict[str, Any]:
    key = want.key
    match want.kind:
        case "channel":
            on_it = sorted(p for p, path in table.paths.items() if path.channel_id == key)
            return {"torn_down": tuple(on_it), "closed_channels": (key,)}
        case "source":
            return {"closed_sources": (key,)}
        case "variable":
            of_it = sorted(p for p, path in table.paths.items() if path.variable_id == key)
            return {"torn_down": tuple(of_it), "dropped": (key,)}
        case _:
            return {"torn_down": (key,)}


@dataclass
class Scene:
    """The table that a broker wants, one router, and the session between them."""

    core: RecordingCore = field(default_factory=RecordingCore)
    wanted: OrderTable = field(default_factory=OrderTable)
    now_ns: int = 0
    is_connected: bool = False
    number: int = 0
    said: list[ChangeTable] = field(default_factory=list)
    confirmed: int | None = None
    is_losing: bool = False
    owes_whole: bool = False

    def __post_init__(self) -> None:
        self.router = StatusRouter("c1/e0", self.core, clock_ns=lambda: self.now_ns)
        self.work = CoreWork(self.router)
        self.agent = RouterAgent(RouterFacts("c1/e0"), newest=lambda _: None)
        self.connect()

    def play(self, step: Step) -> None:
        match step:
            case Want():
                change = changed(self.wanted, step)
                if change is not None:
                    self.wanted.apply(change)
                    self._send(change)
            case Trouble("lose"):
                self.is_losing = True
            case Trouble("repeat"):
                if self.said and self.is_connected:
                    self._receive(self.said[-1])
            case Trouble("cut"):
                self.disconnect()
                self.connect()
            case Trouble("unreachable"):
                self.core.unreachable ^= {1, 2}
            case Trouble("full"):
                full = LimitReached("no room")
                self.core.refusal = full if self.core.refusal is None else None
            case Trouble("flush"):
                self.turn()
            case _:
                self.now_ns += 300 * MS
                self.turn()

    def connect(self) -> None:
        self.is_connected = True
        self.number = 0
        self.owes_whole = False
        hello = Hello(role="broker", name="c1", instance="first")
        self._tell(Connected(BROKER, hello))

    def disconnect(self) -> None:
        self.is_connected = False
        self._tell(Disconnected(BROKER))

    def turn(self) -> None:
        for event in (*self.work.poll(), *self.work.work()):
            self._tell(event)

    def settle(self) -> None:
        """Run without failures until every refusal is answered."""
        self.core.unreachable.clear()
        self.core.refusal = None
        self.is_losing = False
        self._send(ChangeTable(term=1, number=0))
        for _ in range(10):
            if self.owes_whole:
                self._send_whole()
            self.now_ns += 1_100 * MS
            self.turn()

    def _send(self, change: ChangeTable) -> None:
        if self.is_connected:
            self.number += 1
            numbered = msgspec.structs.replace(change, number=self.number)
            self.said.append(numbered)
            if not self.is_losing:
                self._receive(numbered)
            self.is_losing = False

    def _send_whole(self) -> None:
        self.owes_whole = False
        for piece in self.wanted.whole(term=1, number=self.number + 1):
            self.number = piece.number
            self._receive(piece)

    def _receive(self, message: Message) -> None:
        self._tell(Received(BROKER, message))

    def _tell(self, event: RouterEvent) -> None:
        for instruction in self.agent.handle(event, self.now_ns):
            if isinstance(instruction, Send):
                self._hear(instruction.message)
                continue
            for answer in self.work.perform(instruction) or ():
                self._tell(answer)

    def _hear(self, message: Message) -> None:
        match message:
            case ReportRouter(digest=digest):
                self._receive(RouterAccepted(term=1))
                self.confirmed = digest
                if digest != self.wanted.digest:
                    self._send_whole()
            case TableChanged(digest=digest):
                self.confirmed = digest
            case TableRefused():
                self.owes_whole = True
            case _:
                pass


BEGINNING = [
    Want(kind, key, is_wanted=True, variant=key)
    for kind in ("channel", "variable", "path")
    for key in (1, 2)
]


@settings(max_examples=300)
@given(STEPS)
def test_in_the_end_the_core_holds_exactly_what_is_wanted(steps: list[Step]) -> None:
    scene = Scene()
    for step in (*BEGINNING, *steps):
        scene.play(step)
    scene.settle()
    wanted = scene.wanted
    assert scene.confirmed == wanted.digest == scene.agent.table.digest
    assert scene.core.opened.keys() == wanted.channels.keys()
    for channel_id, order in wanted.channels.items():
        assert scene.core.opened[channel_id].address == ("::1", order.data_port, 9)
    assert scene.core.sources == wanted.sources.keys()
    rows = forwarding_rows(
        (carried_of(order) for order in wanted.variables.values()),
        (path_of(order) for order in wanted.paths.values()),
    )
    assert scene.core.rows == {row.variable_id: row for row in rows}
