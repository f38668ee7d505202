"""Sources of a receiver: datagrams of others do not disturb a stream."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint import Receiver
from gridstat.model.rate_law import Period
from tests.protocol.ends import MS, wait_for
from tests.protocol.grids import datagram, event

if TYPE_CHECKING:
    from collections.abc import Iterator

EDGE, OTHER = 7, 99
FAR_NS = 2**63


class Line:
    """A receiver that takes only its sources, the edge that sends to it, and a forger."""

    def __init__(self, *, only_sources: bool) -> None:
        self.receiver = Receiver(variables_max=8, only_sources=only_sources)
        self.receiver.open_source(EDGE)
        self.receiver.expect(1, Period(1, 100))
        self.receiver.start()
        self.edge = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.forger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.forger.bind(("127.0.0.66", 0))
        self.start_ns = time.time_ns()
        self.sent = 0

    def close(self) -> None:
        self.edge.close()
        self.forger.close()
        self.receiver.close()

    def send(self, by: socket.socket, channel_id: int, created_ns: int) -> None:
        self.sent += 1
        raw = datagram(channel_id, event(1, created_ns), counter=self.sent)
        by.sendto(raw, ("127.0.0.1", self.receiver.ports[0]))
        wait_for(self.receiver, **{"in": self.sent})

    def stream(self, first: int, count: int) -> None:
        for slot in range(first, first + count):
            self.send(self.edge, EDGE, self.start_ns + slot * 10 * MS)

    def slots(self) -> list[int]:
        return [
            (at - self.start_ns) // (10 * MS) for at in self.receiver.read()["created_ns"].tolist()
        ]


@pytest.fixture
def line() -> Iterator[Line]:
    made = Line(only_sources=True)
    yield made
    made.close()


def test_datagrams_of_a_channel_that_is_no_source_change_nothing(line: Line) -> None:
    line.stream(0, 20)
    for turn in range(3):
        line.send(line.forger, OTHER, FAR_NS + turn * 10 * MS)
        line.send(line.forger, OTHER, line.start_ns + (20 + turn) * 10 * MS)
    line.stream(20, 20)
    assert line.slots() == list(range(40))
    counters = line.receiver.counters()
    assert (counters["policed_source"], counters["duplicate"]) == (6, 0)
    assert line.receiver.variable_counters(1)["missing"] == 0


def test_nobody_else_is_heard_on_a_channel_whose_edge_is_heard(line: Line) -> None:
    line.stream(0, 20)
    for turn in range(20):
        line.send(line.forger, EDGE, line.start_ns + (20 + turn) * 10 * MS)
        line.stream(20 + turn, 1)  # The edge counts as present for a second.
    assert line.slots() == list(range(40))
    assert line.receiver.counters()["policed_source"] == 20


def test_a_live_stream_follows_no_stamp_that_no_router_lets_pass() -> None:
    """Use a receiver that takes any source, as all but end-points do."""
    line = Line(only_sources=False)
    line.stream(0, 20)
    for turn in range(5):
        line.send(line.forger, OTHER, FAR_NS + turn * 10 * MS)
    line.stream(20, 20)
    assert line.slots() == list(range(40))
    assert line.receiver.counters()["policed_jump"] == 5
    line.close()


def test_the_free_place_of_a_closed_source_takes_nothing_of_channel_0(line: Line) -> None:
    line.stream(0, 5)
    line.receiver.close_source(EDGE)
    line.receiver.open_source(EDGE + 1, is_sealed=True)
    line.receiver.open_source(EDGE + 2)
    line.receiver.close_source(EDGE + 2)
    for turn in range(5):
        line.send(line.forger, 0, line.start_ns + (5 + turn) * 10 * MS)
    assert line.slots() == list(range(5))
    assert line.receiver.counters()["policed_source"] == 5
