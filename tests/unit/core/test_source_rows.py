"""Datagrams that the kernel joined are noted by rows, as if each had come alone."""

from __future__ import annotations

import random
import socket
import time
from typing import TYPE_CHECKING

from gridstat.core.reference import ReferenceCore
from tests.protocol.grids import datagram, event
from tests.unit.core.running import LIMITS, SOURCE, Hop, eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

OTHER = 901
UDP_SEGMENT = 103
"""The socket option by which one call sends many datagrams of one length."""
SEGMENT_BYTES = 40
TRAIN_DATAGRAMS = 60
TRAINS = 300
FACTS = ("datagrams", "lost", "reordered", "probes")


def numbers(dice: random.Random) -> Iterator[int]:
    """Long rows with gaps, late and doubled numbers, and new lives of the sender between them."""
    number = 0
    while True:
        match dice.choices(("row", "gap", "late", "anew"), (70, 10, 19, 1))[0]:
            case "row":
                for _ in range(dice.randrange(1, 200)):
                    number += 1
                    yield number
            case "gap":
                number += dice.randrange(2, dice.choice((5, 80, 3_000)))
                yield number
            case "late":
                yield max(1, number - dice.randrange(1_200))
            case "anew":
                number = dice.choice((1, 10_000_000))
                yield number


def train(dice: random.Random, counters: dict[int, Iterator[int]]) -> list[bytes]:
    """Datagrams of one length, most of them events of one source; probes are padded."""
    datagrams: list[bytes] = []
    for _ in range(TRAIN_DATAGRAMS):
        source = SOURCE if dice.random() < 0.97 else OTHER
        events = [] if dice.random() < 0.03 else [event(1, time.time_ns())]
        raw = datagram(source, *events, counter=next(counters[source]), version=2)
        datagrams.append(raw.ljust(SEGMENT_BYTES, b"\0"))
    return datagrams


def test_a_source_is_told_of_alike_whether_its_datagrams_come_joined_or_alone() -> None:
    dice = random.Random(7)
    counters = {source: numbers(dice) for source in (SOURCE, OTHER)}
    trains = [train(dice, counters) for _ in range(TRAINS)]
    alone = ReferenceCore(LIMITS)
    hop = Hop()
    for core in (alone, hop.core):
        core.open_source(SOURCE)
        core.open_source(OTHER)
    for raw in (raw for datagrams in trains for raw in datagrams):
        alone.inject(raw, now_ns=time.time_ns())
    hop.core.start()
    hop.publisher.setsockopt(socket.IPPROTO_UDP, UDP_SEGMENT, SEGMENT_BYTES)
    events = 0
    for datagrams in trains:
        hop.publisher.sendto(b"".join(datagrams), (hop.host, hop.ports[0]))
        events += sum(any(raw[16:]) for raw in datagrams)
        eventually(hop.settled(events), pause_s=0.0)
    joined, told = hop.core.source_states(), alone.source_states()
    hop.close()
    for source in (SOURCE, OTHER):
        assert {fact: joined[source][fact] for fact in FACTS} == {
            fact: told[source][fact] for fact in FACTS
        }
    assert all(told[SOURCE][fact] > 0 for fact in FACTS)
