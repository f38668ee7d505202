"""A sender, seen from the wire: what leaves, in how many datagrams, and what a full socket does."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.endpoint import Sender
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse
from tests.protocol.ends import NOW_NS, Wire, columns, eventually
from tests.protocol.sealing import LINK, key_of, opened

if TYPE_CHECKING:
    from collections.abc import Iterator

SO_NO_CHECK = 11
HOSTS = ("127.0.0.1", "::1")
MTU_BYTES = 1_232
EVENTS_IN_MTU = (MTU_BYTES - 16) // 24


@pytest.mark.parametrize("host", HOSTS)
def test_each_send_is_one_datagram_with_one_event(host: str) -> None:
    with Wire(host) as wire, Sender(7, wire.address) as sender:
        for value in range(10):
            assert sender.send(5, value, created_ns=NOW_NS + value)
        datagrams = wire.take(10)
    assert [len(datagram.events) for datagram in datagrams] == [1] * 10
    assert [datagram.counter for datagram in datagrams] == list(range(1, 11))
    assert {datagram.channel_id for datagram in datagrams} == {7}
    events = [datagram.events[0] for datagram in datagrams]
    assert [event.created_ns for event in events] == [NOW_NS + value for value in range(10)]
    assert [event.sequence for event in events] == list(range(10))
    assert [int.from_bytes(event.payload, "big") for event in events] == list(range(10))


@pytest.mark.feature("S0-19")
@pytest.mark.parametrize(
    ("value", "octets"),
    [
        (-5, struct.pack(">q", -5)),
        (49.98, struct.pack(">d", 49.98)),
        (True, struct.pack(">q", 1)),
        (np.int64(7), struct.pack(">q", 7)),
        (np.float64(0.5), struct.pack(">d", 0.5)),
    ],
)
def test_a_value_becomes_eight_big_endian_bytes(value: float, octets: bytes) -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        sender.send(5, value)
        (datagram,) = wire.take(1)
    assert bytes(datagram.events[0].payload) == octets


@pytest.mark.feature("S0-15")
@pytest.mark.parametrize("size", [1, 7, 8, 9, 32, 33, 1_000, 6_127, 6_128])
def test_a_record_is_padded_to_whole_options(size: int) -> None:
    record = bytes(index % 255 + 1 for index in range(size))
    with Wire() as wire, Sender(1, wire.address) as sender:
        assert sender.send(5, record)
        (datagram,) = wire.take(1)
    payload = bytes(datagram.events[0].payload)
    assert payload == record.ljust(len(payload), b"\0")
    assert len(payload) == 8 + 24 * max(0, -(-(size - 8) // 24))


@pytest.mark.feature("S0-15")
@pytest.mark.parametrize("size", [0, 6_129])
def test_a_record_that_no_event_can_hold_is_refused(size: int) -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        with pytest.raises(LayoutError, match="6128"):
            sender.send(5, bytes(size))
        assert sender.counters()["events"] == 0


def test_an_event_without_a_stamp_is_stamped_as_it_leaves() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        before_ns = time.time_ns()
        sender.send(5, 1)
        after_ns = time.time_ns()
        (datagram,) = wire.take(1)
    assert before_ns <= datagram.events[0].created_ns <= after_ns


def test_an_urgent_event_leaves_by_the_urgent_port() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        sender.send(5, 1, urgent=True, flags=0b1001)
        octets = wire.urgent.recv(2_048)
    assert len(octets) == 40
    assert octets[16 + 13] == 0b1001


@pytest.mark.feature("S0-17")
def test_a_burst_of_four_is_packed_into_one_datagram() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        assert sender.send_many(*columns(4, variables=2)) == 4
        (datagram,) = wire.take(1)
        assert sender.counters()["datagrams_out"] == 1
    assert [event.variable_id for event in datagram.events] == [0, 1, 0, 1]
    assert [event.sequence for event in datagram.events] == [0, 0, 1, 1]


@pytest.mark.parametrize("posix", [False, True])
@pytest.mark.parametrize("host", HOSTS)
@pytest.mark.parametrize("count", [1, EVENTS_IN_MTU, EVENTS_IN_MTU + 1, 5_000])
def test_many_events_fill_datagrams_up_to_the_mtu(host: str, count: int, posix: bool) -> None:
    with Wire(host) as wire, Sender(1, wire.address, mtu_bytes=MTU_BYTES, posix=posix) as sender:
        variable_ids, values, created_ns = columns(count, variables=3)
        assert sender.send_many(variable_ids, values, created_ns) == count
        expected = -(-count // EVENTS_IN_MTU)
        datagrams = wire.take(expected)
        counters = sender.counters()
    assert counters["datagrams_out"] == expected
    assert counters["bytes_out"] == 16 * expected + 24 * count
    assert counters["fallback"] == 0
    assert [datagram.counter for datagram in datagrams] == list(range(1, expected + 1))
    assert all(datagram.length <= MTU_BYTES for datagram in datagrams)
    events = [event for datagram in datagrams for event in datagram.events]
    assert [event.variable_id for event in events] == variable_ids.tolist()
    assert [event.created_ns for event in events] == created_ns.tolist()
    assert [int.from_bytes(event.payload, "big") for event in events] == values.tolist()


def test_events_per_datagram_bounds_the_packing() -> None:
    options = np.arange(100 * 48, dtype=np.uint8).reshape(100, 48)
    with Wire() as wire, Sender(1, wire.address) as sender:
        sender.send_many(*columns(100), options=options, events_per_datagram=1)
        datagrams = wire.take(100)
    assert [len(datagram.events) for datagram in datagrams] == [1] * 100
    payloads = [bytes(datagram.events[0].payload) for datagram in datagrams]
    assert [payload[8:] for payload in payloads] == [row.tobytes() for row in options]


def test_events_larger_than_the_mtu_travel_alone() -> None:
    options = np.ones((20, 255 * 24), np.uint8)
    with Wire() as wire, Sender(1, wire.address) as sender:
        assert sender.send_many(*columns(20), options=options) == 20
        datagrams = wire.take(20)
    assert [datagram.length for datagram in datagrams] == [16 + 6_144] * 20


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int64, np.int32, np.bool_])
def test_columns_of_other_number_types_are_converted(kind: type[np.generic]) -> None:
    values = np.array([1, 0, 1], kind)
    with Wire() as wire, Sender(1, wire.address) as sender:
        sender.send_many(np.array([1, 2, 3]), values, np.full(3, NOW_NS))
        (datagram,) = wire.take(1)
    code = ">d" if values.dtype.kind == "f" else ">q"
    assert [struct.unpack(code, event.payload)[0] for event in datagram.events] == [1, 0, 1]


@pytest.mark.parametrize(
    ("variable_ids", "values", "created_ns"),
    [
        (np.array([-1]), np.array([1]), np.array([NOW_NS])),
        (np.array([2**32]), np.array([1]), np.array([NOW_NS])),
        (np.array([1.5]), np.array([1]), np.array([NOW_NS])),
        (np.array([1, 2]), np.array([1]), np.array([NOW_NS])),
        (np.array([[1]]), np.array([1]), np.array([NOW_NS])),
        (np.array([1]), np.array(["1"]), np.array([NOW_NS])),
    ],
)
def test_columns_that_would_lose_something_are_refused(
    variable_ids: np.ndarray, values: np.ndarray, created_ns: np.ndarray
) -> None:
    with Wire() as wire, Sender(1, wire.address) as sender, pytest.raises(LayoutError):
        sender.send_many(variable_ids, values, created_ns)


def test_no_events_are_no_datagram() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        assert sender.send_many(*columns(0)) == 0
        assert sender.counters()["datagrams_out"] == 0


def test_more_variables_than_declared_are_refused_by_name() -> None:
    with Wire() as wire, Sender(1, wire.address, variables_max=2) as sender:
        assert sender.send_many(*columns(4, variables=2)) == 4
        with pytest.raises(LimitReached, match="too many different variables"):
            sender.send(9, 1)
        with pytest.raises(LimitReached):
            sender.send_many(*columns(9, variables=3))
        counters = sender.counters()
    assert counters["events"] == counters["sent"] == 6


def test_a_sender_without_gso_falls_back_and_says_so() -> None:
    # The kernel refuses GSO where the checksum is switched off.
    with Wire() as wire, Sender(1, wire.address) as sender:
        with _socket_of(sender) as data:
            data.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        for _ in range(2):
            assert sender.send_many(*columns(1_000)) == 1_000
        assert sender.counters()["fallback"] == 1
        datagrams = wire.take(2 * -(-1_000 // EVENTS_IN_MTU))
    assert sum(len(datagram.events) for datagram in datagrams) == 2_000


def test_an_icmp_error_about_an_earlier_datagram_costs_no_event() -> None:
    with Wire() as wire:
        host, data_port, urgent_port = wire.address
        with Sender(1, wire.address) as sender:
            wire.data.close()

            def refused() -> str | None:
                assert sender.send(5, 1)
                return None if sender.counters()["refused"] else "no ICMP error so far"

            eventually(refused)
            wire.data = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            wire.data.bind((host, data_port))
            wire.data.settimeout(10.0)
            assert sender.send_many(*columns(1_000)) == 1_000
            datagrams = wire.take(-(-1_000 // EVENTS_IN_MTU))
            counters = sender.counters()
    assert sum(len(datagram.events) for datagram in datagrams) == 1_000
    assert counters["events"] == counters["sent"]
    assert urgent_port != data_port


def test_a_full_socket_refuses_a_lone_event_and_counts_it() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender, _narrow_socket(sender):
        accepted = 0
        while sender.send(5, 1):
            accepted += 1
        counters = sender.counters()
    assert counters["sent"] == accepted > 0
    assert counters["would_block"] == 1
    assert counters["events"] == accepted + 1


def test_many_events_wait_for_room_and_lose_nothing() -> None:
    octets = 0
    with Wire() as wire, Sender(1, wire.address) as sender, _narrow_socket(sender) as peer:
        thread = threading.Thread(
            target=sender.send_many, args=columns(20_000), kwargs={"events_per_datagram": 5}
        )
        thread.start()
        while octets < 20_000 * 24 + 4_000 * 16:
            octets += len(peer.recv(65_536))
        thread.join()
        counters = sender.counters()
    assert counters["sent"] == counters["events"] == 20_000
    assert counters["would_block"] == counters["send_failed"] == 0


def test_keys_are_read_and_changed_while_many_events_wait_for_room() -> None:
    first, second = key_of(1), key_of(2)
    epochs: list[int] = []
    with (
        Wire() as wire,
        Sender(LINK, wire.address, posix=True, datagram_version=3, is_sealed=True) as sender,
        _narrow_socket(sender) as peer,
    ):
        sender.set_key(*first)
        thread = threading.Thread(
            target=sender.send_many, args=columns(20_000), kwargs={"events_per_datagram": 5}
        )
        thread.start()
        eventually(lambda: None if sender.counters()["events"] else "it has not begun")
        assert sender.sending_state()["epoch"] == 1
        sender.set_key(*second)
        state = sender.sending_state()
        assert (state["epoch"], state["datagrams"]) == (2, 0), "its next run takes it"
        while len(epochs) < 4_000:
            octets = peer.recv(65_536)
            epochs.append(octets[1])
            opened(octets, {1: first, 2: second}[octets[1]])
        thread.join()
        assert sender.sending_state()["datagrams"] == epochs.count(2)
    assert epochs == sorted(epochs)
    assert set(epochs) == {1, 2}


def test_a_path_that_proves_narrow_gets_the_run_in_pieces() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender, _narrow_socket(sender) as peer:
        count = 20 * EVENTS_IN_MTU
        with _socket_of(sender) as data:
            data.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # The system's least.
        thread = threading.Thread(target=sender.send_many, args=columns(count))
        thread.start()
        sizes = [len(peer.recv(65_536)) for _ in range(20)]
        thread.join()
        counters = sender.counters()
    assert sizes == [16 + 24 * EVENTS_IN_MTU] * 20
    assert counters["mtu_changes"] == 1
    assert counters["sent"] == counters["events"] == count


@pytest.mark.parametrize(
    ("host", "level", "option"), [("127.0.0.1", socket.IPPROTO_IP, 10), ("::1", 41, 23)]
)
def test_only_events_beyond_the_mtu_may_be_fragmented(host: str, level: int, option: int) -> None:
    with Wire(host) as wire, Sender(1, wire.address) as sender, _socket_of(sender) as data:
        modes = [data.getsockopt(level, option)]  # MTU_DISCOVER: 2 is "do", 0 is "don't".
        for record in (bytes(1_300), bytes(8)):
            sender.send(5, record)
            modes.append(data.getsockopt(level, option))
    assert modes == [2, 0, 2]


def test_a_closed_sender_says_so() -> None:
    with Wire() as wire:
        sender = Sender(1, wire.address)
        sender.close()
        sender.close()
        with pytest.raises(Misuse, match="closed"):
            sender.send(1, 1)
        with pytest.raises(Misuse, match="closed"):
            sender.send_many(*columns(1))


@pytest.mark.parametrize(
    ("variable_id", "value", "flags"),
    [(-1, 1, 0), (2**32, 1, 0), (1, 2**63, 0), (1, "1", 0), (1, None, 0), (1, 1, 64)],
)
def test_nonsense_is_refused_before_anything_is_sent(
    variable_id: int, value: float, flags: int
) -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        with pytest.raises(LayoutError):
            sender.send(variable_id, value, flags=flags)
        assert sender.counters()["events"] == 0


def test_an_unknown_host_is_named() -> None:
    with pytest.raises(LinkDown, match="no-such-host"):
        Sender(1, ("no-such-host." + 64 * "x", 1, 2))  # No name server need be asked.


def test_senders_of_one_channel_can_be_shared_by_threads() -> None:
    with Wire() as wire, Sender(1, wire.address) as sender:
        threads = [
            threading.Thread(target=sender.send_many, args=columns(1_000, variables=10))
            for _ in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        datagrams = wire.take(4 * -(-1_000 // EVENTS_IN_MTU))
    events = [event for datagram in datagrams for event in datagram.events]
    for variable_id in range(10):
        found = [event.sequence for event in events if event.variable_id == variable_id]
        assert found == list(range(400))


@contextmanager
def _socket_of(sender: Sender) -> Iterator[socket.socket]:
    with socket.socket(fileno=os.dup(sender.fileno())) as data:
        yield data


@contextmanager
def _narrow_socket(sender: Sender) -> Iterator[socket.socket]:
    """Puts a local socket in the place of the UDP one: unlike loopback, it can be full."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with ours, theirs:
        theirs.settimeout(10.0)
        os.dup2(ours.fileno(), sender.fileno())
        yield theirs


def test_an_event_with_a_sequence_of_its_own_leaves_the_count_of_its_variable_alone() -> None:
    with Wire() as wire, Sender(7, wire.address) as sender:
        for sequence in (None, 700, 700, None, 0, None):
            assert sender.send(5, 1.0, created_ns=NOW_NS, sequence=sequence)
        sent = [datagram.events[0].sequence for datagram in wire.take(6)]
        with pytest.raises(LayoutError):
            sender.send(5, 1.0, sequence=65_536)
    assert sent == [0, 700, 700, 1, 0, 2]
