"""Real datagrams over a real relay: each fault is the law's, to the frame, and counted."""

from __future__ import annotations

import socket
import struct
import threading
import time
from itertools import islice, pairwise
from typing import TYPE_CHECKING

import pytest

from lab.errors import LabError
from lab.relay import Direction, Fate, LinkFaults, fates
from lab.sockets import open_socket
from tests.cluster.eventually import eventually
from tests.cluster.lab_relay.wire import NAME, Wire, drained

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.cluster
COUNT = 1_500


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire(is_sanitized=True) as made:
        yield made


def promised(faults: LinkFaults, count: int = COUNT) -> list[Fate]:
    return list(islice(fates(faults, Direction.FORWARD), count))


def test_a_sound_wire_changes_nothing(wire: Wire) -> None:
    wire.set(LinkFaults())
    before = wire.forward
    assert wire.send_all(COUNT) == list(range(COUNT))
    after = wire.forward
    assert after.in_ - before.in_ == after.out - before.out == COUNT


@pytest.mark.feature("S3-92")
@pytest.mark.parametrize("burst", [(1, 1), (3, 5)])
def test_exactly_the_frames_of_the_seed_are_lost(wire: Wire, burst: tuple[int, int]) -> None:
    faults = LinkFaults(loss=0.08, burst_min=burst[0], burst_max=burst[1], seed=21)
    wire.set(faults)
    before = wire.forward
    survivors = [number for number, fate in enumerate(promised(faults)) if not fate.is_lost]
    assert 0 < len(survivors) < COUNT
    assert wire.send_all(COUNT) == survivors
    assert wire.forward.lost - before.lost == COUNT - len(survivors)


def test_the_same_seed_loses_the_same_frames_again_and_another_others(wire: Wire) -> None:
    runs = []
    for seed in (22, 22, 23):
        wire.set(LinkFaults(loss=0.2, seed=seed))
        runs.append(wire.send_all(300))
    assert runs[0] == runs[1] != runs[2]


@pytest.mark.feature("S3-92")
def test_exactly_the_frames_of_the_seed_come_twice(wire: Wire) -> None:
    faults = LinkFaults(duplicate=0.1, seed=24)
    wire.set(faults)
    before = wire.forward
    twice = [number for number, fate in enumerate(promised(faults)) if fate.is_duplicated]
    assert sorted(wire.send_all(COUNT)) == sorted([*range(COUNT), *twice])
    assert wire.forward.duplicated - before.duplicated == len(twice)


@pytest.mark.feature("S3-92")
def test_a_flipped_bit_reaches_the_application(wire: Wire) -> None:
    faults = LinkFaults(corrupt=0.2, seed=25)
    wire.set(faults)
    before = wire.forward
    altered = 0
    for number, fate in enumerate(promised(faults, 200)):
        filling = bytes(number % 50)  # Odd and even lengths: the checksum pads.
        wire.send(number, filling)
        sent = struct.pack(">Q", number) + filling
        received = wire.receiver.recv(65_536)
        expected = bytearray(sent)
        if fate.is_corrupted:
            altered += 1
            bit = fate.flip % (len(sent) * 8)
            expected[bit // 8] ^= 1 << bit % 8
        assert received == bytes(expected)
    assert altered > 0
    assert wire.forward.corrupted - before.corrupted == altered


def test_a_held_frame_is_overtaken_by_the_next_one(wire: Wire) -> None:
    faults = LinkFaults(delay_ms=1.0, reorder=0.1, seed=26)
    wire.set(faults)
    before = wire.forward
    came = wire.send_all(400)
    overtaken = sum(later < max(came[: at + 1]) for at, later in enumerate(came))
    assert sorted(came) == list(range(400))
    assert overtaken > 0
    assert wire.forward.reordered - before.reordered == overtaken


def test_a_held_frame_goes_on_when_nobody_follows(wire: Wire) -> None:
    wire.set(LinkFaults(reorder=1.0, seed=27))
    wire.send(1)
    assert wire.receiver.recv(65_536) == struct.pack(">Q", 1)


@pytest.mark.feature("S3-92")
def test_no_frame_arrives_before_its_delay_and_all_in_the_order_of_their_due_times(
    wire: Wire,
) -> None:
    faults = LinkFaults(delay_ms=30.0, jitter_ms=20.0, seed=28)
    wire.set(faults)
    fate_of = promised(faults, 60)
    sent_ns, came = [], []
    for number in range(60):
        sent_ns.append(time.monotonic_ns())
        wire.send(number)
    for _ in range(60):
        (number,) = struct.unpack_from(">Q", wire.receiver.recv(65_536))
        came.append(number)
        assert time.monotonic_ns() - sent_ns[number] >= fate_of[number].delay_ns
    # All were sent within far less than the jitter, so their order is that of the delays drawn,
    # but for those drawn closer together than they were sent.
    took_ns = sent_ns[-1] - sent_ns[0]
    for earlier, later in pairwise(came):
        assert fate_of[earlier].delay_ns <= fate_of[later].delay_ns + took_ns
    assert came != sorted(came)


def test_a_rate_spreads_a_burst_and_a_full_queue_drops(wire: Wire) -> None:
    frame_bytes, rate = 14 + 20 + 8 + 8, 1_000
    wire.set(LinkFaults(rate_bytes_per_s=rate, queue_bytes=50 * frame_bytes))
    before = wire.forward
    started_ns = time.monotonic_ns()
    for number in range(80):
        wire.send(number)
    after = wire.wait_settled(before.in_ + 80)
    took_s = (time.monotonic_ns() - started_ns) / 1e9
    came = wire.drain()
    dropped = after.full - before.full
    assert came[:50] == list(range(50))
    assert len(came) + dropped == 80
    # What drains while we send makes room for some more, but not for all.
    assert 0 < dropped <= 30
    assert took_s >= len(came) * frame_bytes / rate


def test_a_cut_may_be_one_way(wire: Wire) -> None:
    wire.set(LinkFaults())
    wire.relay.cut(NAME, direction=Direction.FORWARD)
    before = wire.forward
    wire.send(1)
    wire.wait_settled(before.in_ + 1)
    wire.receiver.sendto(b"back", wire.sender.getsockname())
    wire.sender.settimeout(20.0)
    assert wire.sender.recv(100) == b"back"
    assert wire.drain() == []
    assert wire.forward.cut - before.cut == 1
    wire.relay.heal(NAME, direction=Direction.FORWARD)
    wire.send(2)
    assert wire.receiver.recv(65_536) == struct.pack(">Q", 2)


def test_a_cut_takes_what_is_on_its_way(wire: Wire) -> None:
    wire.set(LinkFaults(delay_ms=5_000.0))
    before = wire.forward
    wire.send(1)
    eventually(lambda: None if wire.forward.waiting else "it is not on its way")
    wire.relay.cut(NAME)
    after = wire.wait_settled(before.in_ + 1)
    assert after.cut - before.cut == 1
    assert wire.drain() == []


def test_a_stream_of_bytes_survives_all_of_it(wire: Wire) -> None:
    faults = LinkFaults(
        delay_ms=1.0, jitter_ms=2.0, loss=0.02, duplicate=0.02, corrupt=0.5, seed=29
    )
    wire.set(LinkFaults())
    content = bytes(range(256)) * 400
    with (
        open_socket(wire.far, socket.SOCK_STREAM) as listener,
        open_socket(wire.near, socket.SOCK_STREAM) as client,
    ):
        listener.listen()
        client.settimeout(20.0)
        client.connect(listener.getsockname())
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(20.0)
            wire.relay.set_faults(NAME, faults)
            sending = threading.Thread(target=client.sendall, args=(content,))
            sending.start()
            received = bytearray()
            while len(received) < len(content):
                received += accepted.recv(65_536)
            sending.join()
    wire.relay.clear(NAME)
    assert bytes(received) == content


def test_datagrams_of_a_segmented_send_are_frames_of_their_own(wire: Wire) -> None:
    udp_segment, count = 103, 64
    wire.set(LinkFaults())
    before = wire.forward
    train = b"".join(struct.pack(">Q", number) for number in range(count))
    wire.sender.sendmsg(
        [train],
        [(socket.SOL_UDP, udp_segment, struct.pack("H", 8))],
        0,
        wire.receiver.getsockname(),
    )
    wire.wait_settled(before.in_ + count)
    assert wire.drain() == list(range(count))


def test_a_datagram_in_fragments_passes_whole(wire: Wire) -> None:
    wire.set(LinkFaults(corrupt=1.0, seed=30))
    wire.send(1, bytes(4_000))
    assert drained_one(wire) == struct.pack(">Q", 1) + bytes(4_000)


def drained_one(wire: Wire) -> bytes:
    received: bytes = wire.receiver.recv(65_536)
    assert drained(wire.receiver) == []
    return received


@pytest.mark.parametrize(
    "words",
    [
        ("loss", "2"),
        ("loss", "nan"),
        ("loss", "0.1x"),
        ("loss",),
        ("delay_ms", "-1"),
        ("burst_min", "0"),
        ("burst_min", "9"),
        ("colour", "red"),
        ("seed", "-1"),
    ],
)
def test_a_setting_that_cannot_be_changes_nothing(wire: Wire, words: tuple[str, ...]) -> None:
    wire.set(LinkFaults())
    with pytest.raises(LabError):
        wire.relay._order("set", NAME, "forward", "corrupt", "1", *words)
    wire.send(1)
    assert wire.receiver.recv(65_536) == struct.pack(">Q", 1)
