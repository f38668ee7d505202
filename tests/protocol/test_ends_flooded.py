"""Hearing all that floods: known variables are handed out, unknown ones asked for, once each."""

from __future__ import annotations

import itertools
import socket
import threading
import time
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import pytest

from gridstat.endpoint.flooded import FloodedEvent, FloodedSubscription
from gridstat.model.errors import LinkDown
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, StatusEvent, StatusVariable
from gridstat.net.codec.datagram import encode_datagram
from gridstat.net.codec.event import encode_event
from gridstat.net.command.endpoint_messages import FoundOutcome, ListenToFloods

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

HOST = "127.0.0.1"
WITHIN_S = 20.0


def variable(number: int) -> StatusVariable:
    return StatusVariable(
        name=f"c1/pmu/v{number}",
        variable_id=VariableId(number),
        value_type=BuiltinType.INT64,
        period=Period(1, 50),
    )


class Cloud:
    """Answers what floods, and remembers what it was asked."""

    def __init__(self) -> None:
        self.floods: tuple[StatusVariable, ...] = ()
        self.asked: list[ListenToFloods] = []
        self.is_away = False
        self.is_slow = False
        self._unanswered: list[tuple[Future[Any], Callable[..., Any]]] = []

    def ask(self, command: Any, use: Callable[..., Any]) -> Future[Any]:
        self.asked.append(command)
        future: Future[Any] = Future()
        if self.is_away:
            future.set_exception(LinkDown("away"))
        else:
            self._unanswered.append((future, use))
        if not self.is_slow:
            self.answer()
        return future

    def answer(self) -> None:
        self.is_slow = False
        while self._unanswered:
            future, use = self._unanswered.pop(0)
            future.set_result(use((FoundOutcome(variables=self.floods),), ()))


class Edge:
    """Sends what floods, as an edge router would."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._counter = 0

    def send(self, cloud: Cloud, number: int, slot: int) -> None:
        self.send_all(cloud, [self.octets(number, slot)])

    def send_all(self, cloud: Cloud, datagrams: Iterable[bytes]) -> None:
        for octets in datagrams:
            self._socket.sendto(octets, (HOST, cloud.asked[0].data_port))

    def octets(self, number: int, slot: int) -> bytes:
        self._counter += 1
        event = StatusEvent(
            created_ns=slot * 20_000_000,
            variable_id=VariableId(number),
            payload=slot.to_bytes(8, "big"),
        )
        return encode_datagram(1, self._counter, events=[encode_event(event)])

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def edge() -> Iterator[Edge]:
    found = Edge()
    yield found
    found.close()


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_events_are_handed_out_once_with_their_variable(edge: Edge) -> None:
    cloud, heard = Cloud(), list[FloodedEvent]()
    cloud.floods = (variable(1),)
    first_slot = time.time_ns() // 20_000_000
    with FloodedSubscription(cloud, HOST, heard.append) as flooded:
        for slot in (first_slot, first_slot, first_slot + 1):
            edge.send(cloud, 1, slot)
        until(lambda: len(heard) >= 2)
        assert [(each.name, each.delivery.value) for each in heard] == [
            ("c1/pmu/v1", first_slot),
            ("c1/pmu/v1", first_slot + 1),
        ]
        assert flooded.newest["c1/pmu/v1"].delivery.value == first_slot + 1
    assert cloud.asked[-1] == ListenToFloods()
    flooded.unsubscribe()
    assert flooded.is_over


def test_an_event_of_something_unknown_makes_it_ask_what_floods(edge: Edge) -> None:
    cloud, heard = Cloud(), list[FloodedEvent]()
    slot = time.time_ns() // 20_000_000
    with FloodedSubscription(cloud, HOST, heard.append) as flooded:
        assert flooded.variables == ()
        cloud.floods = (variable(2),)
        edge.send(cloud, 2, slot)
        later = itertools.count(slot + 1)

        def comes() -> bool:
            edge.send(cloud, 2, next(later))
            return bool(heard)

        until(comes)
        assert heard[-1].name == "c1/pmu/v2"


def test_while_the_cloud_is_away_what_is_known_is_still_heard(edge: Edge) -> None:
    cloud, heard = Cloud(), list[FloodedEvent]()
    cloud.floods = (variable(1),)
    slot = time.time_ns() // 20_000_000
    flooded = FloodedSubscription(cloud, HOST, heard.append)
    cloud.is_away = True
    edge.send(cloud, 9, slot)
    until(lambda: len(cloud.asked) >= 2)
    edge.send(cloud, 1, slot)
    until(lambda: bool(heard))
    with pytest.raises(LinkDown):
        flooded.unsubscribe()
    assert flooded.is_over


def test_what_is_known_is_heard_while_the_cloud_takes_its_time_to_answer(edge: Edge) -> None:
    cloud, heard = Cloud(), list[FloodedEvent]()
    cloud.floods = (variable(1),)
    slot = time.time_ns() // 20_000_000
    with FloodedSubscription(cloud, HOST, heard.append) as flooded:
        cloud.is_slow = True
        cloud.floods = (variable(1), variable(9))
        edge.send(cloud, 9, slot)
        until(lambda: len(cloud.asked) >= 2)
        edge.send(cloud, 1, slot)
        try:
            until(lambda: bool(heard))
            assert len(cloud.asked) == 2
        finally:
            cloud.answer()
        until(lambda: len(flooded.variables) == 2)


def test_nothing_is_asked_anew_once_the_end_was_told(edge: Edge) -> None:
    cloud = Cloud()
    cloud.floods = (variable(1),)
    before = set(threading.enumerate())
    flooded = FloodedSubscription(cloud, HOST)
    (asking,) = set(threading.enumerate()) - before
    cloud.is_slow = True
    ending = threading.Thread(target=flooded.unsubscribe)
    ending.start()
    until(lambda: len(cloud.asked) == 2)
    try:
        edge.send(cloud, 9, time.time_ns() // 20_000_000)
        assert not asking.is_alive(), "whoever could ask has ended before the end was told"
        assert cloud.asked[1:] == [ListenToFloods()]
        assert not flooded.is_over
    finally:
        cloud.answer()
        ending.join()
    assert flooded.is_over


def test_it_may_be_ended_in_its_own_callback(edge: Edge) -> None:
    cloud, heard = Cloud(), list[FloodedEvent]()
    cloud.floods = (variable(1),)
    slot = time.time_ns() // 20_000_000

    def once(event: FloodedEvent) -> None:
        heard.append(event)
        for _ in range(2):
            flooded.unsubscribe()

    failed: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading, "excepthook", failed.append)
        flooded = FloodedSubscription(cloud, HOST, once)
        octets = [edge.octets(1, slot + at) for at in range(3)] + [edge.octets(9, slot)]
        edge.send_all(cloud, octets)
        until(lambda: flooded.is_over)
        until(lambda: "gs-flooded" not in {thread.name for thread in threading.enumerate()})
    assert failed == []
    assert len(heard) == 1
    assert cloud.asked[1:] == [ListenToFloods()]


def test_a_callback_that_raises_ends_nothing(edge: Edge, caplog: pytest.LogCaptureFixture) -> None:
    cloud = Cloud()
    cloud.floods = (variable(1),)
    slot = time.time_ns() // 20_000_000

    def fail(_: FloodedEvent) -> None:
        raise ValueError("once more")

    with FloodedSubscription(cloud, HOST, fail) as flooded:
        edge.send(cloud, 1, slot)
        edge.send(cloud, 1, slot + 1)
        until(lambda: flooded.heard == 2)
    assert "callback failed" in caplog.text


def test_a_listener_that_is_refused_later_knows_why_until_it_is_let_in_again(
    edge: Edge, caplog: pytest.LogCaptureFixture
) -> None:
    cloud = Cloud()
    slot = time.time_ns() // 20_000_000
    with FloodedSubscription(cloud, HOST) as flooded:
        flooded.refused("rule access: gone")
        assert flooded.refusal == "rule access: gone"
        assert "flooded_refused" in caplog.text
        edge.send_all(cloud, [edge.octets(9, slot)])
        until(lambda: not flooded.refusal)
