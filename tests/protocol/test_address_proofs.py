"""An edge router and an address that is not the end-point's: probes go there, and no event.

Agent, executor and compiled core are the real ones; the test plays broker, end-point and network.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

import pytest

from gridstat.core._core import Core
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    AddressProved,
    AddressRefused,
    AskAddress,
    ProveAddress,
)
from gridstat.net.command.machine import (
    Connected,
    Disconnected,
    Received,
    Send,
    SetTimer,
    TimerFired,
)
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    ChannelSeed,
    PathOrder,
    RouterAccepted,
    SeedAccepted,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import Hello
from gridstat.router import RouterAgent, RouterFacts, StatusRouter
from gridstat.router.address_proofs import AGAIN_NS, PROOF_NS
from gridstat.router.agent_events import ApplyTable, SeedTaken, TakeSeed
from gridstat.router.core_work import CoreWork
from tests.protocol.grids import HEADER, MS, NOW_NS, SMALL, datagram, event

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from gridstat.router.agent_events import RouterEvent

Kind = TypeVar("Kind")
BROKER, READER = "broker/c1", "endpoint/c1/reader"
DOWN, FROM = 7, 3
ORDERS = ChangeTable(
    term=1,
    number=1,
    begins_anew=True,
    channels=(
        ChannelOrder(
            channel_id=DOWN,
            to="c1/reader",
            host="127.0.0.1",
            data_port=1,
            urgent_port=2,
            datagram_version=3,
            is_endpoint=True,
        ),
    ),
    sources=(SourceOrder(channel_id=FROM, sender="c1/w0"),),
    variables=(VariableOrder(variable_id=1, period=None),),
    paths=(PathOrder(path_id=65_536, variable_id=1, channel_id=DOWN),),
)


class Edge:
    """The edge router's parts, its clock, and the messages to the end-point."""

    def __init__(self) -> None:
        self.now_ns = NS_PER_S
        self.core = Core(SMALL)
        self.router = StatusRouter("c1/e0", self.core, clock_ns=self._clock_ns, in_memory=True)
        self.work = CoreWork(self.router)
        facts = RouterFacts("c1/e0", is_edge=True, datagram_versions=(1, 2, 3))
        self.agent = RouterAgent(facts, newest=self.router.newest)
        self.timers: dict[str, int] = {}
        self.told: list[Message] = []
        self.published = 0
        self.tell(Connected(BROKER, Hello(role="broker", name="c1", instance="b")))
        self.tell(Received(BROKER, RouterAccepted(term=1)))
        self.attach()
        self.tell(Received(BROKER, ORDERS))

    def _clock_ns(self) -> int:
        return self.now_ns

    def attach(self) -> None:
        self.tell(Connected(READER, Hello(role="endpoint", name="c1/reader", instance="r")))

    def tell(self, happened: RouterEvent) -> None:
        for instruction in self.agent.handle(happened, self.now_ns):
            match instruction:
                case Send(peer, message) if peer == READER:
                    self.told.append(message)
                case SetTimer(name, after_ns):
                    self.timers[name] = self.now_ns + after_ns
                case _:
                    for answer in self.work.perform(instruction) or ():
                        self.tell(answer)
        for done in self.work.work():
            self.tell(done)

    def say(self, message: Message) -> None:
        """A message of the end-point."""
        self.tell(Received(READER, message))

    def accept_seeds(self) -> None:
        """Answer the seeds of the channel down, as the end-point does."""
        for message in self.taken(ChannelSeed):
            if message.channel_id == DOWN:
                self.say(SeedAccepted(channel_id=DOWN, number=message.number, first_epoch=5))

    def taken(self, kind: type[Kind]) -> list[Kind]:
        found: list[Kind] = [message for message in self.told if isinstance(message, kind)]
        self.told = [message for message in self.told if not isinstance(message, kind)]
        return found

    def wait(self, duration_ns: int) -> list[int]:
        """Let time pass and publish all the while; the sizes of the datagrams that left."""
        sizes = []
        until_ns = self.now_ns + duration_ns
        while self.now_ns < until_ns:
            self.now_ns += 25 * MS
            for name, due_ns in sorted(self.timers.items()):
                if due_ns <= self.now_ns:
                    del self.timers[name]
                    self.tell(TimerFired(name))
            self.published += 1
            one = event(1, NOW_NS + self.published * MS, sequence=self.published)
            self.core.inject(datagram(FROM, one, counter=self.published), now_ns=self.now_ns)
            self.core.pump(self.now_ns)
            for _, octets in self.core.take_output(DOWN):
                sizes.append(len(octets))
                self.newest = HEADER.unpack_from(octets)[4]
        return sizes


PROBE, EVENT = 32, 56


@pytest.fixture
def edge() -> Edge:
    made = Edge()
    made.accept_seeds()
    return made


def test_the_receiver_at_the_address_says_a_counter_and_gets_the_events(edge: Edge) -> None:
    assert edge.taken(AskAddress) == [AskAddress(channel_id=DOWN)]
    assert set(edge.wait(200 * MS)) == {PROBE}
    edge.say(ProveAddress(channel_id=DOWN, counter=edge.newest - 1))
    assert edge.taken(AddressProved) == [AddressProved(channel_id=DOWN)]
    assert set(edge.wait(200 * MS)) == {EVENT}
    counters = edge.core.channel_counters(DOWN)
    assert counters["due"] == counters["sent"] + counters["unproven"]


def test_an_address_of_others_gets_a_few_probes_and_no_event(edge: Edge) -> None:
    edge.taken(AskAddress)
    sizes = edge.wait(PROOF_NS + NS_PER_S)
    assert set(sizes) == {PROBE}
    assert len(sizes) <= PROOF_NS // (25 * MS) + 20
    [refused] = edge.taken(AddressRefused)
    assert "127.0.0.1 port 1" in refused.reason
    assert edge.wait(10 * NS_PER_S) == []
    assert edge.core.channel_counters(DOWN)["sent"] == 0


def test_after_an_outage_the_end_point_is_asked_again_and_gets_its_events(edge: Edge) -> None:
    edge.wait(PROOF_NS + NS_PER_S)
    edge.taken(AskAddress)
    assert edge.wait(AGAIN_NS - 2 * NS_PER_S) == [], "no probes between the proofs"
    assert set(edge.wait(2 * NS_PER_S)) == {PROBE}
    assert edge.taken(AskAddress) == [AskAddress(channel_id=DOWN)]
    edge.say(ProveAddress(channel_id=DOWN, counter=edge.newest))
    assert edge.taken(AddressProved) == [AddressProved(channel_id=DOWN)]
    assert set(edge.wait(200 * MS)) == {EVENT}


def test_guessed_counters_prove_nothing(edge: Edge) -> None:
    edge.wait(100 * MS)
    edge.taken(AskAddress)
    for guess in (0, 1, 100, edge.newest + 1, edge.newest + 1_000, 2**63 - 1):
        edge.say(ProveAddress(channel_id=DOWN, counter=guess))
    assert edge.taken(AddressProved) == []
    assert len(edge.taken(AskAddress)) == 6
    assert set(edge.wait(100 * MS)) == {PROBE}


def test_nothing_goes_to_the_address_once_the_session_has_ended(edge: Edge) -> None:
    edge.wait(100 * MS)
    edge.tell(Disconnected(READER))
    assert edge.wait(10 * NS_PER_S) == []
    edge.attach()
    edge.accept_seeds()
    assert edge.taken(AskAddress)
    assert set(edge.wait(100 * MS)) == {PROBE}


def test_the_counters_begin_at_random() -> None:
    starts = set()
    for _ in range(4):
        made = Edge()
        made.accept_seeds()
        made.wait(50 * MS)
        starts.add(made.newest >> 16)
    assert len(starts) == 4


def test_a_seed_that_the_edge_gave_itself_outlives_the_session_with_the_broker() -> None:
    edge = Edge()
    up = 8
    edge.work.perform(TakeSeed(ChannelSeed(channel_id=up, number=1, secret=bytes(32))))
    foreign = 9
    edge.work.perform(TakeSeed(ChannelSeed(channel_id=foreign, number=2, secret=bytes(32))))
    order = SourceOrder(channel_id=up, sender="c1/reader", is_publisher=True, is_sealed=True)
    edge.agent.handle(
        Received(BROKER, ChangeTable(term=1, number=2, sources=(order,))), edge.now_ns
    )
    edge.tell(Disconnected(BROKER))
    sources = (order, SourceOrder(channel_id=foreign, sender="c1/w0", is_sealed=True))
    applied = edge.work.perform(ApplyTable(2, ChangeTable(term=1, number=2, sources=sources)))
    taken = [each for each in applied or () if isinstance(each, SeedTaken)]
    assert [(each.channel_id, each.number) for each in taken] == [(up, 1)]
