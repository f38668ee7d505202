"""Managed routers around real cores, a stub for a broker, and two carriers for their events.

In memory the test moves every datagram and the clock; over UDP the cores' own threads do, in real
time. Commands always go through real frames, in memory, so that nothing but the network is left
out. What a test says of a cloud must hold with either carrier.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from gridstat.core._core import Core
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.frames import FrameReader, decode_message, frame
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Connected,
    Disconnected,
    Note,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    ReportRouter,
    RouterAccepted,
    TableChanged,
    TableRefused,
)
from gridstat.net.command.session_messages import Hello
from gridstat.router import RouterAgent, RouterFacts, StatusRouter
from gridstat.router.core_work import CoreWork
from tests.protocol.grids import SMALL, datagram, told

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.net.command.messages import Message
    from gridstat.router.agent_events import RouterEvent

BROKER = "broker/c1"
PROBES = {"datagram_version": 2, "probe_interval_ms": 25}
TEN_MS = Period(1, 100)


class Carrier(Protocol):
    """Transport of events, and its clock."""

    def now_ns(self) -> int: ...
    def steady_ns(self) -> int: ...
    def attach(self, router: ManagedRouter) -> tuple[str, int, int]:
        """Let a router listen; its address."""
        ...

    def subscriber(self) -> tuple[str, int, int]:
        """The address of a subscriber."""
        ...

    def publish(self, router: ManagedRouter, raw: bytes) -> None: ...
    def carry(self, routers: dict[str, ManagedRouter]) -> None: ...
    def arrived(self) -> list[bytes]: ...
    def wait(self, condition: Callable[[], str | None]) -> None: ...
    def detach(self, router: ManagedRouter) -> None: ...
    def close(self) -> None: ...


class ManagedRouter:
    """One router's parts, driven by the test's loop."""

    def __init__(self, name: str, carrier: Carrier, *, in_memory: bool) -> None:
        self.name = name
        self.core = Core(SMALL)
        self.router = StatusRouter(name, self.core, clock_ns=carrier.steady_ns, in_memory=in_memory)
        self.work = CoreWork(self.router)
        self.agent = RouterAgent(
            RouterFacts(name, is_edge=True, datagram_versions=(1, 2)), newest=self.router.newest
        )
        self.to_broker: deque[bytes] = deque()
        self.to_end_points: list[tuple[str, Message]] = []
        self.closed: list[Close] = []
        self.timers: dict[str, int] = {}
        self._steady_ns = carrier.steady_ns
        self.agent.listen_at(carrier.attach(self), command=("127.0.0.1", 1))

    def tell(self, event: RouterEvent) -> None:
        for instruction in self.agent.handle(event, self._steady_ns()):
            self._do(instruction)

    def turn(self) -> None:
        """One turn of what is an event loop elsewhere."""
        for name, due_ns in sorted(self.timers.items()):
            if self._steady_ns() >= due_ns:
                del self.timers[name]
                self.tell(TimerFired(name))
        for event in (*self.work.poll(), *self.work.work()):
            self.tell(event)

    def _do(self, instruction: object) -> None:
        match instruction:
            case Send(peer, message) if peer == BROKER:
                self.to_broker.append(frame(message))
            case Send(peer, message):
                self.to_end_points.append((peer, message))
            case Close():
                self.closed.append(instruction)
            case SetTimer(name, after_ns):
                self.timers[name] = self._steady_ns() + after_ns
            case CancelTimer(name):
                self.timers.pop(name, None)
            case Note():
                pass
            case _:
                events = self.work.perform(instruction)
                assert events is not None
                for event in events:
                    self.tell(event)


class StubBroker:
    """Knows what each router shall hold because the test says so; computes no path."""

    def __init__(self) -> None:
        self.term = 1
        self.wanted: dict[str, OrderTable] = {}
        self.heard: dict[str, list[Message]] = {}
        self.reports: dict[str, list[ReportRouter]] = {}
        self.held: dict[str, int] = {}
        self._numbers: dict[str, int] = {}

    def want(self, router: str, change: ChangeTable) -> None:
        self.wanted.setdefault(router, OrderTable()).apply(change)

    def next_number(self, router: str) -> int:
        self._numbers[router] = self._numbers.get(router, 0) + 1
        return self._numbers[router]

    def hear(self, router: str, message: Message) -> list[Message]:
        """Return the broker's answers to a message of a router."""
        match message:
            case ReportRouter():
                self.reports.setdefault(router, []).append(message)
                return [RouterAccepted(term=self.term), *self._catch_up(router, message.digest)]
            case TableChanged(digest=digest):
                self.held[router] = digest
            case TableRefused():
                raise AssertionError(f"{router} refused: {message.reason}")
            case _:
                self.heard.setdefault(router, []).append(message)
        return []

    def _catch_up(self, router: str, digest: int) -> list[Message]:
        self._numbers[router] = 0
        self.held[router] = digest
        wanted = self.wanted.setdefault(router, OrderTable())
        if digest == wanted.digest:
            return []
        pieces = list(wanted.whole(term=self.term, number=1))
        self._numbers[router] = len(pieces)
        return [*pieces]

    def complaint(self, router: str) -> str | None:
        same = self.held.get(router) == self.wanted[router].digest
        return None if same else f"{router} does not hold what is wanted"


class RouterCloud:
    """Routers and the stub, and the sessions between them."""

    def __init__(self, carrier: Carrier, *, in_memory: bool) -> None:
        self.carrier = carrier
        self.broker = StubBroker()
        self.routers: dict[str, ManagedRouter] = {}
        self._in_memory = in_memory
        self._connected: set[str] = set()
        self._readers: dict[str, FrameReader] = {}
        self._counter = 0

    def add(self, *names: str) -> None:
        """New processes of these names, connected to the broker."""
        for name in names:
            router = ManagedRouter(name, self.carrier, in_memory=self._in_memory)
            self.routers[name] = router
            self.connect(name)

    def crash(self, name: str) -> None:
        self.disconnect(name)
        router = self.routers.pop(name)
        self.carrier.detach(router)
        router.router.close()

    def connect(self, name: str) -> None:
        self._connected.add(name)
        self._readers[name] = FrameReader()
        self.routers[name].to_broker.clear()
        hello = Hello(role="broker", name="c1", instance="first")
        self.routers[name].tell(Connected(BROKER, hello))

    def disconnect(self, name: str) -> None:
        if name in self._connected:
            self._connected.discard(name)
            self.routers[name].tell(Disconnected(BROKER))

    def address(self, name: str) -> tuple[str, int, int]:
        report = self.broker.reports[name][-1]
        return report.host, report.data_port, report.urgent_port

    def order(self, name: str, change: ChangeTable) -> None:
        """Have a router changed: at once if it is connected, else when it is again."""
        self.broker.want(name, change)
        if name in self._connected:
            number = self.broker.next_number(name)
            self._say(name, msgspec.structs.replace(change, number=number))

    def turn(self) -> None:
        self.carrier.carry(self.routers)
        for name, router in sorted(self.routers.items()):
            router.turn()
            while name in self._connected and router.to_broker:
                for body in self._readers[name].feed(router.to_broker.popleft()):
                    message = decode_message(body)
                    assert message is not None
                    for answer in self.broker.hear(name, message):
                        self._say(name, answer)

    def wait(self, condition: Callable[[], str | None]) -> None:
        """Let the cloud go on until the condition has no complaint left."""

        def after_a_turn() -> str | None:
            self.turn()
            return condition()

        self.carrier.wait(after_a_turn)

    def settle(self) -> None:
        """Wait until every connected router holds the table that the broker wants."""

        def complaint() -> str | None:
            complaints = (self.broker.complaint(name) for name in sorted(self._connected))
            return next((found for found in complaints if found), None)

        self.wait(complaint)

    def publish(self, name: str, channel_id: int, *events: bytes) -> None:
        self._counter += 1
        raw = datagram(channel_id, *events, counter=self._counter)
        self.carrier.publish(self.routers[name], raw)

    def arrived(self) -> list[tuple[int, int]]:
        """Variable and stamp of every event that came to the subscriber since the last call."""
        return told((0, raw) for raw in self.carrier.arrived())

    def close(self) -> None:
        for name in tuple(self.routers):
            self.crash(name)
        self.carrier.close()

    def _say(self, name: str, message: Message) -> None:
        for body in FrameReader().feed(frame(message)):
            decoded = decode_message(body)
            assert decoded is not None
            self.routers[name].tell(Received(BROKER, decoded))


def channel_to(
    channel_id: int, address: tuple[str, int, int], *, to: str = "c1/x", **more: Any
) -> ChannelOrder:
    host, data_port, urgent_port = address
    return ChannelOrder(
        channel_id=channel_id,
        to=to,
        host=host,
        data_port=data_port,
        urgent_port=urgent_port,
        **more,
    )


def slot_after(now_ns: int) -> int:
    """The next slot of a 10 ms variable."""
    return now_ns * 100 // NS_PER_S + 1


def stamp_of(slot: int) -> int:
    return slot * NS_PER_S // 100
