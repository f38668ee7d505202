"""Sealed sender and receiver of an end-point, over sockets, with every backend of the machine."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.core._core import Core
from gridstat.core._ends import Receiver, Sender
from gridstat.core.key_settings import KEYS_MAX, TAG_BYTES
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.model.errors import LayoutError, LimitReached, Misuse, UnknownName
from gridstat.model.rate_law import Period
from tests.protocol.ends import ENDINGS, MS, NOW_NS, Wire, eventually
from tests.protocol.grids import HEADER, datagram, events_in
from tests.protocol.sealing import LINK, backends, key_of, opened, sealed, state_of

if TYPE_CHECKING:
    from collections.abc import Iterator

HOST = "127.0.0.1"
FIRST, SECOND = key_of(1), key_of(2)


@contextmanager
def receiver_of(seal_backend: str, *, only_sources: bool = True) -> Iterator[Receiver]:
    """A receiver of variables 0 to 99, every event of them, on the sealed source LINK."""
    receiver = Receiver(
        keep="ring", only_sources=only_sources, variables_max=256, seal_backend=seal_backend
    )
    try:
        receiver.open_source(LINK, is_sealed=True)
        receiver.set_keys(LINK, [FIRST])
        for variable_id in range(100):
            receiver.expect(variable_id, None)
        receiver.start()
        yield receiver
    finally:
        receiver.close()


def sealed_sender(
    address: tuple[str, int, int],
    seal_backend: str = "best",
    *,
    channel_id: int = LINK,
    mtu_bytes: int = 1_232,
    posix: bool = False,
) -> Sender:
    return Sender(
        channel_id,
        address,
        mtu_bytes=mtu_bytes,
        posix=posix,
        datagram_version=3,
        is_sealed=True,
        seal_backend=seal_backend,
    )


def address_of(receiver: Receiver) -> tuple[str, int, int]:
    return (HOST, *receiver.ports)


def await_count(receiver: Receiver, name: str, count: int) -> dict[str, int]:
    def complaint() -> str | None:
        found = receiver.counters()[name]
        return None if found >= count else f"{name} is {found}, not {count}"

    eventually(complaint)
    return receiver.counters()


def plain_event(number: int) -> bytes:
    stamp = NOW_NS + number * MS
    return stamp.to_bytes(8, "big") + bytes(6) + (number % 65_536).to_bytes(2, "big") + bytes(8)


@backends
@pytest.mark.parametrize("urgent", [False, True])
def test_a_lone_event_is_sealed_for_its_port(seal_backend: str, urgent: bool) -> None:
    with (
        Wire() as wire,
        sealed_sender(wire.address, seal_backend) as sender,
    ):
        sender.set_key(*FIRST)
        assert sender.send(7, 1.5, urgent=urgent)
        port = wire.urgent if urgent else wire.data
        octets = port.recv(65_536)
        assert len(octets) == HEADER.size + 24 + TAG_BYTES
        assert len(events_in(opened(octets, FIRST, int(urgent)))) == 1
        assert sender.sending_state() == {
            "epoch": 1,
            "datagrams": 1,
            "first_counter": 1,
            "newest_counter": 1,
        }


@backends
@pytest.mark.parametrize("posix", [False, True])
@pytest.mark.parametrize(("mtu_bytes", "options"), [(1_232, 0), (1_232, 3), (300, 1), (64, 5)])
def test_packed_events_fill_sealed_datagrams_up_to_the_mtu(
    seal_backend: str, posix: bool, mtu_bytes: int, options: int
) -> None:
    count = 1_000
    with receiver_of(seal_backend) as receiver:
        sender = sealed_sender(address_of(receiver), seal_backend, mtu_bytes=mtu_bytes, posix=posix)
        sender.set_key(*FIRST)
        ids = np.arange(count, dtype="u4") % 100
        stamps = NOW_NS + np.arange(count, dtype="u8") * MS
        rest = np.zeros((count, 24 * options), dtype="u1") if options else None
        assert sender.send_many(ids, np.arange(count), stamps, options=rest) == count
        counters = await_count(receiver, "delivered", count)
        assert counters["in"] == count
        samples = receiver.read()
        assert sorted(samples["created_ns"]) == sorted(stamps)
        size = 24 + 24 * options
        each = max(1, (mtu_bytes - HEADER.size - TAG_BYTES) // size)
        datagrams = -(-count // each)
        sent = sender.counters()
        assert (sent["sent"], sent["datagrams_out"]) == (count, datagrams)
        assert sent["bytes_out"] == datagrams * (HEADER.size + TAG_BYTES) + count * size
        assert receiver.source_states()[LINK]["lost"] == 0
        sender.close()


@backends
def test_without_a_key_a_sender_sends_nothing(seal_backend: str) -> None:
    with (
        Wire() as wire,
        sealed_sender(wire.address, seal_backend) as sender,
    ):
        assert not sender.send(7, 1)
        assert not sender.probe()
        ids, stamps = np.zeros(10, dtype="u4"), np.arange(10, dtype="u8")
        assert sender.send_many(ids, np.arange(10), stamps) == 0
        counters = sender.counters()
        assert (counters["events"], counters["no_key"], counters["datagrams_out"]) == (11, 11, 0)
        sender.set_key(*FIRST)
        assert sender.send(7, 1)
        assert HEADER.unpack_from(opened(wire.data.recv(65_536), FIRST))[4] == 1
        sender.clear_key()
        assert not sender.send(7, 1)
        assert sender.sending_state()["epoch"] == -1


@backends
def test_forged_and_replayed_datagrams_move_nothing(seal_backend: str) -> None:
    with receiver_of(seal_backend) as receiver, _socket() as forger:
        data, urgent = ((HOST, port) for port in receiver.ports)
        good = [sealed(plain_event(n), counter=n + 1, key=FIRST) for n in range(50)]
        for octets in good:
            forger.sendto(octets, data)
        await_count(receiver, "delivered", 50)
        state = dict(receiver.source_states()[LINK], silent_ns=0)
        wrong = bytearray(sealed(plain_event(60), counter=60, key=FIRST))
        wrong[-1] ^= 1
        for octets in (*good, bytes(wrong), sealed(plain_event(1), counter=1, key=SECOND)):
            forger.sendto(octets, data)
        forger.sendto(sealed(plain_event(61), counter=61, key=FIRST), urgent)
        forger.sendto(sealed(plain_event(61), counter=1, key=FIRST, to=99), data)
        forger.sendto(datagram(LINK, plain_event(61), counter=61), data)
        counters = await_count(receiver, "datagrams_in", 50 + 50 + 2 + 3)
        assert (counters["in"], counters["delivered"]) == (50, 50)
        assert counters["sealed_replayed"] == 50
        assert counters["sealed_forged"] == 2
        assert counters["sealed_unknown_epoch"] == counters["sealed_unknown_channel"] == 1
        assert counters["sealed_plain"] == 1
        assert counters["in"] == sum(counters[end] for end in ENDINGS)
        assert dict(receiver.source_states()[LINK], silent_ns=0) == state
        assert receiver.receiving_state(LINK) == state_of(opened=(1,), unknown=(2,))
        assert receiver.receiving_state(LINK) == state_of()


@backends
def test_a_replay_into_the_second_trial_of_an_epoch_moves_nothing(seal_backend: str) -> None:
    """Attack: a true datagram of an epoch on trial, one held up from the old epoch, and the first
    one again when the epoch is tried again."""
    with receiver_of(seal_backend) as receiver, _socket() as stranger:
        data = HOST, receiver.ports[0]
        receiver.set_keys(LINK, [FIRST, SECOND])
        true = sealed(plain_event(5), counter=1_000, key=SECOND)
        held_up = sealed(plain_event(6), counter=77, key=FIRST)
        for octets in (true, held_up):
            stranger.sendto(octets, data)
        await_count(receiver, "delivered", 2)
        assert receiver.receiving_state(LINK) == state_of(opened=(1, 2))
        receiver.set_keys(LINK, [FIRST])
        receiver.set_keys(LINK, [FIRST, SECOND])
        state = dict(receiver.source_states()[LINK], silent_ns=0)
        stranger.sendto(true, data)
        counters = await_count(receiver, "datagrams_in", 3)
        assert (counters["in"], counters["sealed_replayed"]) == (2, 1)
        assert dict(receiver.source_states()[LINK], silent_ns=0) == state


@backends
def test_a_foreign_host_cannot_lock_the_sender_out(seal_backend: str) -> None:
    """What is authentic is accepted from any host; what is not pins the source to no host."""
    with receiver_of(seal_backend) as receiver, _socket("127.0.0.2") as foreign, _socket() as own:
        data = (HOST, receiver.ports[0])
        for number in range(20):
            foreign.sendto(sealed(plain_event(0), counter=90, key=key_of(1, variant=5)), data)
            own.sendto(sealed(plain_event(number), counter=number + 1, key=FIRST), data)
        counters = await_count(receiver, "datagrams_in", 40)
        assert (counters["delivered"], counters["sealed_forged"]) == (20, 20)
        foreign.sendto(sealed(plain_event(30), counter=30, key=FIRST), data)
        assert await_count(receiver, "delivered", 21)["policed_source"] == 0


@backends
def test_keys_change_while_events_flow(seal_backend: str) -> None:
    """Many rotations, the receiver always one ahead: every event arrives once."""
    with receiver_of(seal_backend) as receiver:
        with sealed_sender(address_of(receiver), seal_backend) as sender:
            for epoch in range(300):
                receiver.set_keys(LINK, [key_of(epoch), key_of(epoch - 1)])
                sender.set_key(*key_of(epoch))
                for number in range(4):
                    assert sender.send(number, epoch, urgent=number == 3)
                await_count(receiver, "delivered", 4 * epoch)
            assert sender.sending_state()["datagrams"] == 4
        counters = await_count(receiver, "delivered", 1_200)
        assert counters["in"] == 1_200
        assert receiver.source_states()[LINK]["lost"] == 0
        state = receiver.receiving_state(LINK)
        assert state["epochs"] == (298 % 256, 299 % 256)
        assert 297 % 256 in state["dropped_epochs"]
        assert receiver.receiving_state(LINK) == state_of()


@backends
def test_end_points_and_a_router_seal_every_hop(seal_backend: str) -> None:
    """Sender, running core, receiver, with another key on each hop."""
    core = Core(Limits(variables_max=64, rings_max=8), seal_backend=seal_backend)
    with receiver_of(seal_backend) as receiver:
        try:
            ports = core.listen(HOST)
            core.open_source(9, is_sealed=True)
            core.set_receiving_keys(9, [SECOND])
            core.open_channel(
                ChannelSpec(LINK, address=address_of(receiver), datagram_version=3, is_sealed=True)
            )
            core.set_sending_key(LINK, *FIRST)
            core.commit(
                [Row(v, Period(1, 1_000), routes=(Route(LINK, (Term(1),)),)) for v in range(40)]
            )
            core.start()
            with sealed_sender((HOST, *ports), seal_backend, channel_id=9) as sender:
                sender.set_key(*SECOND)
                now_ns = time.time_ns() // MS * MS
                for slot in range(50):
                    ids = np.arange(40, dtype="u4")
                    stamps = np.full(40, now_ns + slot * MS, dtype="u8")
                    assert sender.send_many(ids, np.arange(40), stamps) == 40
                await_count(receiver, "delivered", 2_000)
            assert core.counters()["dispatched"] == 2_000
            assert core.sending_state(LINK)["datagrams"] > 0
        finally:
            core.close()


@backends
def test_a_core_changes_keys_while_its_thread_forwards(seal_backend: str) -> None:
    """The control side swaps keys of source and channel all the time; nothing is lost."""
    core = Core(Limits(variables_max=64, rings_max=64), seal_backend=seal_backend)
    with receiver_of(seal_backend) as receiver:
        try:
            ports = core.listen(HOST)
            core.open_source(9, is_sealed=True)
            core.open_channel(
                ChannelSpec(LINK, address=address_of(receiver), datagram_version=3, is_sealed=True)
            )
            core.commit([Row(v, None, routes=(Route(LINK, (Term(1),)),)) for v in range(3)])
            core.start()
            sender = sealed_sender((HOST, *ports), seal_backend, channel_id=9)
            total = 0
            for epoch in range(200):
                core.set_receiving_keys(9, [key_of(epoch), key_of(epoch - 1)])
                sender.set_key(*key_of(epoch))
                receiver.set_keys(LINK, [key_of(epoch), key_of(epoch - 1)])
                core.set_sending_key(LINK, *key_of(epoch))
                for number in range(3):
                    assert sender.send(number, epoch, created_ns=NOW_NS + total * MS)
                    total += 1
                await_count(receiver, "delivered", total - 3)
            counters = await_count(receiver, "delivered", total)
            assert counters["in"] == total
            assert core.retired() <= 4
            sender.close()
        finally:
            core.close()


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(LayoutError, match="is_sealed=False"):
        Sender(LINK, (HOST, 9, 9), datagram_version=3)
    with pytest.raises(LayoutError, match="version 2"):
        Sender(LINK, (HOST, 9, 9), datagram_version=2, is_sealed=True)
    with pytest.raises(UnknownName, match="rot13"):
        Sender(LINK, (HOST, 9, 9), seal_backend="rot13")
    with pytest.raises(UnknownName, match="rot13"):
        Receiver(seal_backend="rot13")
    with Sender(LINK, (HOST, 9, 9)) as plain, pytest.raises(Misuse, match="does not seal"):
        plain.set_key(*FIRST)
    with sealed_sender((HOST, 9, 9)) as sender:
        for wrong in ((256, *FIRST[1:]), (1, b"", b"salt"), (1, bytes(16), b"long salt")):
            with pytest.raises(LayoutError):
                sender.set_key(*wrong)
    receiver = Receiver()
    receiver.open_source(1)
    receiver.open_source(2, is_sealed=True)
    with pytest.raises(Misuse, match="close it first"):
        receiver.open_source(1, is_sealed=True)
    for unsealed in (1, 3):
        with pytest.raises(Misuse, match="not sealed"):
            receiver.set_keys(unsealed, [FIRST])
        with pytest.raises(Misuse, match="not sealed"):
            receiver.receiving_state(unsealed)
    with pytest.raises(LimitReached):
        receiver.set_keys(2, [key_of(epoch) for epoch in range(KEYS_MAX + 1)])
    receiver.close()


def test_keys_lie_in_memory_that_core_dumps_leave_out() -> None:
    """`dd`: not dumped; `wf`: zeros in a forked child."""
    with sealed_sender((HOST, 9, 9)) as sender:
        sender.set_key(*FIRST)
        with open("/proc/self/smaps", encoding="ascii") as facts:
            flags = [line.split()[1:] for line in facts if line.startswith("VmFlags")]
        assert any({"dd", "wf"} <= set(each) for each in flags)


def test_a_closed_source_opened_again_has_no_keys() -> None:
    with receiver_of("best") as receiver, _socket() as sender:
        receiver.close_source(LINK)
        receiver.open_source(LINK, is_sealed=True)
        sender.sendto(sealed(plain_event(1), counter=1, key=FIRST), (HOST, receiver.ports[0]))
        assert await_count(receiver, "datagrams_in", 1)["sealed_unknown_epoch"] == 1


def test_two_threads_set_keys_of_one_sender() -> None:
    with Wire() as wire, sealed_sender(wire.address) as sender:

        def rotate(first: int) -> None:
            for epoch in range(first, first + 100):
                sender.set_key(*key_of(epoch))
                assert sender.send(1, epoch)

        threads = [threading.Thread(target=rotate, args=(first,)) for first in (0, 100)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seen = set()
        for _ in range(200):
            octets = wire.data.recv(65_536)
            seen.add(HEADER.unpack_from(opened(octets, key_of(octets[1])))[4])
        assert seen == set(range(1, 201))


@contextmanager
def _socket(host: str = HOST) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened_socket:
        opened_socket.bind((host, 0))
        yield opened_socket


def test_sequences_begin_anew_while_counters_and_the_key_go_on() -> None:
    with Wire() as wire, sealed_sender(wire.address) as sender:
        sender.set_key(*FIRST)
        for variable_id in (7, 7, 8):
            assert sender.send(variable_id, 1)
        sender.restart_sequences()
        assert sender.send(7, 1)
        seen = [wire.data.recv(65_536) for _ in range(4)]
        counters = [HEADER.unpack_from(octets)[4] for octets in seen]
        assert counters == [1, 2, 3, 4]
        (event,) = events_in(opened(seen[-1], FIRST))
        assert int.from_bytes(event[14:16], "big") == 0
