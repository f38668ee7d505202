"""Signs of life between the ends: probes of senders, and what receivers know of their channels."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING

import pytest

from gridstat.core._ends import Sender
from gridstat.endpoint import Receiver
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse, UnknownName
from tests.protocol.ends import ENDINGS, MS, NOW_NS, Wire, columns, eventually, wait_for
from tests.protocol.grids import datagram, event

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CHANNEL = 7
HOST = "127.0.0.1"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver(variables_max=16) as made:
        made.expect(1, None)
        made.open_source(CHANNEL)
        made.start()
        yield made


def sender_to(receiver: Receiver, **settings: int) -> Sender:
    words = {"datagram_version": 2, **settings}
    return Sender(CHANNEL, (HOST, *receiver.ports), **words)  # type: ignore[arg-type]


def state(receiver: Receiver) -> dict[str, int]:
    return receiver.source_states()[CHANNEL]


def is_silent_for(receiver: Receiver, least_ns: int) -> Callable[[], str | None]:
    def complaint() -> str | None:
        found = state(receiver)
        return None if found["silent_ns"] >= least_ns else f"not silent so long: {found}"

    return complaint


def test_a_probe_is_heard_and_is_no_event(receiver: Receiver) -> None:
    with sender_to(receiver) as sender:
        assert [sender.probe() for _ in range(3)] == [True] * 3
        assert sender.send(1, 5)
        wait_for(receiver, datagrams_in=4)
        sent = sender.counters()
    assert (sent["probes"], sent["events"], sent["datagrams_out"]) == (3, 1, 4)
    assert sent["events"] == sent["sent"] + sent["send_failed"] + sent["would_block"]
    counters = receiver.counters()
    assert (counters["probes"], counters["in"], counters["malformed"]) == (3, 1, 0)
    assert counters["in"] == sum(counters[ending] for ending in ENDINGS)
    found = state(receiver)
    assert (found["datagrams"], found["probes"], found["lost"]) == (4, 3, 0)


@pytest.mark.parametrize("version", [1, 2])
def test_a_sender_speaks_the_version_that_was_agreed(version: int) -> None:
    with Wire() as wire, Sender(CHANNEL, wire.address, datagram_version=version) as sender:
        sender.send(1, 5)
        sender.send_many(*columns(200))
        found = wire.take(1 + sender.counters()["datagrams_out"] - 1)
    assert {one.version for one in found} == {version}


def test_a_probe_on_the_wire_is_a_header_alone() -> None:
    with Wire() as wire, Sender(CHANNEL, wire.address, datagram_version=2) as sender:
        sender.send(1, 5)
        sender.probe()
        assert wire.data.recv(100)[:1] == b"\x02"
        assert wire.data.recv(100) == datagram(CHANNEL, counter=2, version=2)


def test_a_sender_of_version_1_has_no_probes() -> None:
    with Wire() as wire, Sender(CHANNEL, wire.address) as sender:
        with pytest.raises(Misuse, match="version 1"):
            sender.probe()
        assert sender.counter == 0


@pytest.mark.parametrize("version", [0, 4])
def test_a_version_that_does_not_exist_is_refused(version: int) -> None:
    with pytest.raises(LayoutError, match="datagram_version"):
        Sender(CHANNEL, (HOST, 9, 9), datagram_version=version)


def test_a_successor_goes_on_with_the_counter(receiver: Receiver) -> None:
    with sender_to(receiver) as first:
        for _ in range(5):
            first.probe()
        assert first.counter == 5
    with sender_to(receiver, counter_start=first.counter) as second:
        second.probe()
        second.send(1, 3)
        wait_for(receiver, datagrams_in=7)
    assert state(receiver)["lost"] == state(receiver)["reordered"] == 0


def test_a_sender_that_is_sent_elsewhere_keeps_counter_and_sequences() -> None:
    with Wire() as before, Wire() as after, Sender(CHANNEL, before.address) as sender:
        sender.send(1, 10)
        sender.send(1, 11)
        sender.retarget(after.address)
        sender.send(1, 12)
        sender.send(1, 13, urgent=True)
        sender.send_many(*columns(100))
        first, second = before.take(2), after.take(1)
        assert [one.counter for one in (*first, *second)] == [1, 2, 3]
        sequences = [one.events[0].sequence for one in (*first, *second)]
        assert sequences == [0, 1, 2]
        assert after.urgent.recv(100)[8:16] == (4).to_bytes(8, "big")
        assert sender.counters()["sent"] == 104


def test_a_sender_that_cannot_be_sent_elsewhere_stays_where_it_was() -> None:
    with Wire() as wire, Sender(CHANNEL, wire.address) as sender:
        with pytest.raises(LinkDown):
            sender.retarget(("no-such-host." + 64 * "x", 1, 2))
        with pytest.raises(LayoutError):
            sender.retarget((HOST, 0, 2))
        assert sender.send(1, 3)
        assert wire.take(1)[0].counter == 1


def test_a_closed_sender_cannot_be_sent_elsewhere() -> None:
    with Wire() as wire:
        sender = Sender(CHANNEL, wire.address, datagram_version=2)
        sender.close()
        with pytest.raises(Misuse, match="closed"):
            sender.retarget(wire.address)
        with pytest.raises(Misuse, match="closed"):
            sender.probe()


def closed_ports() -> tuple[str, int, int]:
    """Two ports that were free a moment ago, so that the kernel answers for them."""
    with Wire() as wire:
        return wire.address


def test_sends_to_nobody_are_counted_and_never_raise() -> None:
    with Sender(CHANNEL, closed_ports(), datagram_version=2) as sender:
        for number in range(50):
            sender.send(1, number)
            sender.probe()
        sent = sender.counters()
    assert sent["refused"] > 0
    assert sent["events"] == 50 == sent["sent"] + sent["send_failed"] + sent["would_block"]
    assert 0 < sent["probes"] <= 50


def test_a_send_that_the_system_refuses_is_false_and_counted() -> None:
    """A socket that is shut for writing refuses each datagram at once."""
    with Wire() as wire, Sender(CHANNEL, wire.address, datagram_version=2) as sender:
        assert sender.send(1, 1)
        shut = socket.socket(fileno=sender.fileno())
        shut.shutdown(socket.SHUT_WR)
        shut.detach()
        assert not sender.send(1, 2)
        assert not sender.probe()
        assert sender.send_many(*columns(10)) == 0
        counters = sender.counters()
    assert (counters["sent"], counters["send_failed"], counters["probes"]) == (1, 11, 0)


def test_silence_of_a_channel_grows_and_ends_with_the_next_datagram(receiver: Receiver) -> None:
    with sender_to(receiver) as sender:
        sender.probe()
        wait_for(receiver, probes=1)
        eventually(is_silent_for(receiver, 60 * MS))
        assert state(receiver)["heard_ns"] <= time.monotonic_ns() - 60 * MS
        before_ns = time.monotonic_ns()
        sender.send(1, 1)
        wait_for(receiver, delivered=1)
        assert state(receiver)["heard_ns"] >= before_ns
        eventually(is_silent_for(receiver, 20 * MS))


def test_a_channel_never_heard_is_silent_since_it_was_opened(receiver: Receiver) -> None:
    receiver.open_source(9)
    eventually(is_silent_for(receiver, 50 * MS))
    later = receiver.source_states()[9]
    earlier = receiver.source_states()[CHANNEL]
    assert later["heard_ns"] == earlier["heard_ns"] == 0
    assert later["silent_ns"] <= earlier["silent_ns"]


def test_a_source_opened_while_the_thread_sleeps_is_watched_at_once() -> None:
    with Receiver(variables_max=4) as receiver:
        receiver.start()
        receiver.open_source(CHANNEL)
        eventually(is_silent_for(receiver, 30 * MS))


def test_losses_of_both_ports_are_counted_together(receiver: Receiver) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as speaker:
        heard = ((1, 0), (2, 1), (3, 0), (6, 1), (5, 0), (9, 0))
        for number, (counter, port) in enumerate(heard, start=1):
            raw = datagram(CHANNEL, event(1, NOW_NS + counter), counter=counter)
            speaker.sendto(raw, (HOST, receiver.ports[port]))
            wait_for(receiver, datagrams_in=number)
    found = state(receiver)
    assert (found["datagrams"], found["lost"], found["reordered"]) == (6, 3, 1)


def test_channels_that_nobody_watches_are_taken_as_ever() -> None:
    with Receiver(variables_max=4) as receiver, sender_to(receiver) as sender:
        receiver.expect(1, None)
        receiver.start()
        sender.probe()
        sender.send(1, 1)
        wait_for(receiver, delivered=1, probes=1)
        assert receiver.source_states() == {}
        assert receiver.variable_counters(1)["copies"] == []


def test_watching_ends_and_begins_anew(receiver: Receiver) -> None:
    with sender_to(receiver) as sender:
        sender.probe()
        wait_for(receiver, probes=1)
        receiver.close_source(CHANNEL)
        assert receiver.source_states() == {}
        sender.probe()
        wait_for(receiver, probes=2)
        receiver.open_source(CHANNEL)
        receiver.open_source(CHANNEL)
        assert state(receiver)["datagrams"] == 0
        sender.probe()
        wait_for(receiver, probes=3)
        assert (state(receiver)["datagrams"], state(receiver)["lost"]) == (1, 0)


def test_a_receiver_watches_no_more_channels_than_it_has_places() -> None:
    with Receiver(variables_max=4) as receiver:
        for channel_id in range(1, 65):
            receiver.open_source(channel_id)
        with pytest.raises(LimitReached, match="at most 64"):
            receiver.open_source(65)
        receiver.close_source(30)
        receiver.open_source(65)
        assert len(receiver.source_states()) == 64
        with pytest.raises(UnknownName, match="source 30"):
            receiver.close_source(30)


@pytest.mark.parametrize("channel_id", [0, 2**32])
def test_what_is_no_channel_cannot_be_watched(receiver: Receiver, channel_id: int) -> None:
    with pytest.raises(LayoutError, match="channel_id"):
        receiver.open_source(channel_id)
    with pytest.raises(LayoutError, match="channel_id"):
        receiver.close_source(channel_id)
