"""A receiver: every event in exactly one counter, the first copy only, and several ways to read."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.core._core import Core
from gridstat.core.rows import ChannelSpec, Limits, Route, Row, Term
from gridstat.endpoint import SAMPLE, Receiver, Sender
from gridstat.model.errors import LayoutError, LimitReached, LinkDown, Misuse
from gridstat.model.rate_law import Period
from tests.protocol.ends import ENDINGS, MS, NOW_NS, columns, wait_for
from tests.protocol.grids import datagram, event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.core.end_settings import ReceiverSettings

HOSTS = ("127.0.0.1", "::1")
KILOHERTZ = Period(1, 1_000)
SMALL: ReceiverSettings = {"variables_max": 1_024, "ring_events": 4_096}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Expects variables 0 to 9 a thousand times a second, and 100 whenever it comes."""
    with Receiver(**SMALL) as opened:
        for variable_id in range(10):
            opened.expect(variable_id, KILOHERTZ)
        opened.expect(100, None)
        opened.start()
        yield opened


@pytest.fixture
def sender(receiver: Receiver) -> Iterator[Sender]:
    with Sender(7, ("127.0.0.1", *receiver.ports)) as opened:
        yield opened


def reconciles(receiver: Receiver) -> bool:
    counters = receiver.counters()
    return counters["in"] == sum(counters[name] for name in ENDINGS)


@pytest.mark.feature("S3-54")
@pytest.mark.parametrize("posix", [False, True])
@pytest.mark.parametrize("host", HOSTS)
def test_what_is_sent_arrives_once_in_order_and_unchanged(host: str, posix: bool) -> None:
    with Receiver(host=host, posix=posix) as receiver:
        for variable_id in range(3):
            receiver.expect(variable_id, KILOHERTZ)
        receiver.start()
        with Sender(7, (host, *receiver.ports), posix=posix) as sender:
            variable_ids, values, created_ns = columns(3_000, variables=3)
            assert sender.send_many(variable_ids, values, created_ns) == 3_000
            wait_for(receiver, delivered=3_000)
        batch = receiver.read()
        assert reconciles(receiver)
    assert batch.dtype == SAMPLE
    assert batch["variable_id"].tolist() == variable_ids.tolist()
    assert batch["created_ns"].tolist() == created_ns.tolist()
    assert batch["value"].tolist() == values.tolist()
    assert batch["sequence"].tolist() == (np.arange(3_000) // 3).tolist()
    assert (batch["received_ns"] > batch["created_ns"]).all()


@pytest.mark.feature("S3-109")
@pytest.mark.parametrize("hops", [1, 2, 3, 4])
def test_the_stamp_of_creation_survives_every_hop(hops: int) -> None:
    limits = Limits(variables_max=64, rings_max=4, channels_max=4, pool_small=64, pool_large=4)
    cores = [Core(limits) for _ in range(hops)]
    with Receiver(**SMALL) as receiver:
        receiver.expect(5, KILOHERTZ)
        receiver.start()
        next_ports = receiver.ports
        for index in reversed(range(hops)):
            row = Row(5, KILOHERTZ, source=index + 1, routes=(Route(index + 2, (Term(1),)),))
            cores[index].open_channel(ChannelSpec(index + 2, address=("127.0.0.1", *next_ports)))
            cores[index].open_source(index + 1)
            cores[index].commit([row])
            next_ports = cores[index].listen("127.0.0.1")
            cores[index].start()
        with Sender(1, ("127.0.0.1", *next_ports)) as sender:
            stamps = [NOW_NS + slot * MS + slot for slot in range(100)]
            for stamp_ns in stamps:
                sender.send(5, 1, created_ns=stamp_ns)
            wait_for(receiver, delivered=100)
        batch = receiver.read()
        for each in cores:
            each.close()
    assert batch["created_ns"].tolist() == stamps


@pytest.mark.feature("S0-51")
def test_the_second_copy_of_a_periodic_event_is_suppressed(
    receiver: Receiver, sender: Sender
) -> None:
    with Sender(8, ("127.0.0.1", *receiver.ports)) as second_path:
        sender.send_many(*columns(1_000, variables=10))
        second_path.send_many(*columns(1_000, variables=10))
        wait_for(receiver, **{"in": 2_000})
    counters = receiver.counters()
    assert counters["delivered"] == counters["duplicate"] == 1_000
    batch = receiver.read()
    assert len({(row["variable_id"], row["created_ns"]) for row in batch}) == 1_000
    assert reconciles(receiver)


@pytest.mark.feature("S0-51")
def test_the_second_copy_of_an_aperiodic_event_is_suppressed(receiver: Receiver) -> None:
    with (
        Sender(7, ("127.0.0.1", *receiver.ports)) as first_path,
        Sender(8, ("127.0.0.1", *receiver.ports)) as second_path,
    ):
        for value in range(50):
            for path in (first_path, second_path):
                path.send(100, value, created_ns=NOW_NS)  # They differ only in their sequence.
        wait_for(receiver, **{"in": 100})
    assert receiver.counters()["duplicate"] == 50
    assert receiver.read()["value"].tolist() == list(range(50))


def test_a_leap_of_the_publisher_costs_one_event(receiver: Receiver, sender: Sender) -> None:
    for slot in (0, 1, 1_000_000, 1_000_001, 1_000_002):
        sender.send(1, slot, created_ns=NOW_NS + slot * MS)
    wait_for(receiver, **{"in": 5})
    assert receiver.counters()["policed_jump"] == 1
    assert receiver.read()["value"].tolist() == [0, 1, 1_000_001, 1_000_002]


def test_a_variable_nobody_expects_is_counted_as_unknown(
    receiver: Receiver, sender: Sender
) -> None:
    sender.send(55, 1)
    sender.send(1, 2)
    wait_for(receiver, **{"in": 2})
    assert receiver.counters()["unknown"] == 1
    assert receiver.read()["variable_id"].tolist() == [1]


def test_unknown_variables_are_delivered_on_request() -> None:
    with Receiver(accept_unknown=True, variables_max=2) as receiver:
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for value in range(4):
                sender.send(value, value, created_ns=NOW_NS)
                sender.send(value, value, created_ns=NOW_NS)
            wait_for(receiver, delivered=8)
        newest = [receiver.newest(variable_id) for variable_id in range(4)]
        assert receiver.counters()["newest_full"] == 4
    assert [sample is not None for sample in newest] == [True, True, False, False]


def test_unknown_variables_leave_all_places_to_the_expected_ones() -> None:
    with Receiver(accept_unknown=True, variables_max=4) as receiver:
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for variable_id in range(100):
                sender.send(variable_id, 1, created_ns=NOW_NS)
            wait_for(receiver, delivered=100)
            for variable_id in (1, 2, 98, 99):  # Two of them have been adopted already.
                receiver.expect(variable_id, None)
            with Sender(8, ("127.0.0.1", *receiver.ports)) as second_path:
                for path in (sender, second_path):
                    path.send(99, 2, created_ns=NOW_NS + MS)
            wait_for(receiver, **{"in": 102})
        newest = receiver.newest(99)
    assert newest is not None
    assert newest.value == 2


GOOD = datagram(7, event(1, NOW_NS))
LIES = {
    "malformed_short": GOOD[:15],
    "malformed_version": b"\x04" + GOOD[1:],
    "malformed_epoch": GOOD[:1] + b"\x01" + GOOD[2:],
    "malformed_length": GOOD[:-1],
    "malformed_option": GOOD[:28] + b"\x01" + GOOD[29:],
}


@pytest.mark.feature("S0-16")
@pytest.mark.parametrize("reason", LIES)
def test_a_bad_datagram_is_dropped_whole_and_the_next_one_is_read(
    receiver: Receiver, reason: str
) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
        liar.sendto(LIES[reason], ("127.0.0.1", receiver.ports[0]))
        liar.sendto(GOOD, ("127.0.0.1", receiver.ports[0]))
        wait_for(receiver, **{"in": 2})
    counters = receiver.counters()
    assert counters[reason] == counters["malformed"] == counters["delivered"] == 1
    assert reconciles(receiver)


def test_an_empty_datagram_is_short(receiver: Receiver) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
        liar.sendto(b"", ("127.0.0.1", receiver.ports[1]))
        wait_for(receiver, malformed_short=1)


def test_events_beyond_the_ring_are_counted_and_the_next_ones_come() -> None:
    with Receiver(ring_events=16) as receiver:
        receiver.expect(0, KILOHERTZ)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            variable_ids, values, created_ns = columns(200)
            sender.send_many(variable_ids[:100], values[:100], created_ns[:100])
            wait_for(receiver, **{"in": 100})
            assert receiver.counters()["ring_full"] == 84
            assert receiver.read()["value"].tolist() == list(range(16))
            sender.send_many(variable_ids[100:110], values[100:110], created_ns[100:110])
            wait_for(receiver, **{"in": 110})
        assert receiver.read()["value"].tolist() == list(range(100, 110))
        assert reconciles(receiver)


def test_a_ring_much_smaller_than_the_stream_keeps_the_order_over_its_seam() -> None:
    taken: list[int] = []
    with Receiver(ring_events=64) as receiver:
        receiver.expect(0, KILOHERTZ)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            variable_ids, values, created_ns = columns(1_000)
            for at in range(0, 1_000, 40):
                part = slice(at, at + 40)
                sender.send_many(variable_ids[part], values[part], created_ns[part])
                wait_for(receiver, delivered=at + 40)
                taken += receiver.read(events_max=7)["value"].tolist()
                taken += receiver.read()["value"].tolist()
    assert taken == list(range(1_000))


def test_counters_reconcile_under_a_mix_of_everything(receiver: Receiver) -> None:
    chance = random.Random(7)
    tried = 0
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        for _ in range(500):
            events = [
                event(chance.randrange(12), NOW_NS + chance.randrange(400) * MS)
                for _ in range(chance.randrange(1, 20))
            ]
            octets = bytearray(datagram(7, *events))
            if chance.random() < 0.3:
                octets[chance.randrange(4)] ^= 1 << chance.randrange(8)
            peer.sendto(octets, ("127.0.0.1", receiver.ports[chance.randrange(2)]))
            tried += 1
        wait_for(receiver, datagrams_in=tried)
    counters = receiver.counters()
    assert reconciles(receiver)
    assert all(counters[name] for name in ("malformed", "unknown", "duplicate", "delivered"))
    assert len(receiver.read()) == counters["delivered"]


def test_what_is_urgent_is_read_first() -> None:
    with Receiver(**SMALL) as receiver:
        receiver.expect(1, KILOHERTZ)
        receiver.expect(2, None)
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for slot in range(50):
                sender.send(1, slot, created_ns=NOW_NS + slot * MS)
            sender.send(2, 1, urgent=True)
        receiver.start()
        wait_for(receiver, delivered=51)
        assert receiver.read()["variable_id"].tolist() == [2] + [1] * 50


def test_the_page_shows_the_counters_to_other_processes() -> None:
    page = bytearray(4_096)
    with Receiver(page=page, keep="count") as receiver:
        receiver.expect(1, KILOHERTZ)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for slot in (0, 1, 1):
                sender.send(1, slot, created_ns=NOW_NS + slot * MS)
            wait_for(receiver, **{"in": 3})
        receiver.stop()
        words = np.frombuffer(page, np.uint64)[:5].tolist()
        assert receiver.counters()["delivered"] == 2
    assert words[:4] == [2, 3, 1, 0]
    assert words[4] > NOW_NS
    page.clear()  # The receiver has let go of it.


def test_only_trustworthy_stamps_enter_the_histogram(receiver: Receiver, sender: Sender) -> None:
    sender.send(1, 1)
    sender.send(2, 1, flags=2)
    wait_for(receiver, delivered=2)
    assert sum(count for _, count in receiver.latency_histogram()) == 1


def test_the_newest_value_is_not_replaced_by_an_older_one() -> None:
    with Receiver(keep="newest") as receiver:
        receiver.expect(1, KILOHERTZ)
        receiver.expect(2, None)
        receiver.start()
        with Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
            for variable_id in (1, 2):
                for slot in (5, 7, 6):
                    sender.send(variable_id, slot / 2, created_ns=NOW_NS + slot * MS)
            wait_for(receiver, delivered=6)
        for variable_id in (1, 2):
            sample = receiver.newest(variable_id)
            assert sample is not None
            assert (sample.value_float, sample.created_ns) == (3.5, NOW_NS + 7 * MS)
        assert receiver.newest(3) is None
        with pytest.raises(Misuse, match="keeps no events"):
            receiver.read()


def test_counting_alone_keeps_neither_events_nor_values() -> None:
    with Receiver(keep="count") as receiver:
        receiver.expect(1, KILOHERTZ)
        with pytest.raises(Misuse, match="keeps no values"):
            receiver.newest(1)
        with pytest.raises(Misuse, match="keeps no events"):
            receiver.read()


def test_a_variable_with_a_new_law_starts_afresh(receiver: Receiver, sender: Sender) -> None:
    sender.send(1, 1, created_ns=NOW_NS)
    wait_for(receiver, delivered=1)
    receiver.expect(1, KILOHERTZ)  # The same law: the window stays.
    sender.send(1, 2, created_ns=NOW_NS)
    wait_for(receiver, duplicate=1)
    receiver.expect(1, Period(1, 500))
    sender.send(1, 3, created_ns=NOW_NS)
    wait_for(receiver, delivered=2)
    assert receiver.read()["value"].tolist() == [1, 3]


def test_more_variables_than_declared_are_refused_by_name() -> None:
    with Receiver(variables_max=2) as receiver:
        receiver.expect(1, KILOHERTZ)
        receiver.expect(2, None)
        with pytest.raises(LimitReached, match="too many variables"):
            receiver.expect(3, KILOHERTZ)


def test_a_port_in_use_is_named_and_the_way_out_is_the_hint() -> None:
    with Receiver(**SMALL) as receiver, pytest.raises(LinkDown) as raised:
        Receiver(data_port=receiver.ports[0])
    assert raised.value.args == (
        f"cannot listen on 127.0.0.1 ports {receiver.ports[0]} and 0: the address is in use",
    )
    assert raised.value.hint == "choose another port, or 0 for any free one"


@pytest.mark.parametrize(
    "settings",
    [
        {"keep": "everything"},
        {"data_port": 65_536},
        {"ring_events": 0},
        {"variables_max": 2**25},
        {"page": bytearray(4_095)},
    ],
)
def test_nonsense_is_refused_before_a_port_is_bound(settings: ReceiverSettings) -> None:
    with pytest.raises(LayoutError):
        Receiver(**settings)


def test_a_closed_receiver_says_so_and_still_hands_out_what_it_has(
    receiver: Receiver, sender: Sender
) -> None:
    sender.send(1, 1)
    wait_for(receiver, delivered=1)
    receiver.close()
    receiver.close()
    assert len(receiver.read(timeout_s=None)) == 1
    with pytest.raises(Misuse, match="closed"):
        receiver.start()


def test_receiving_goes_on_after_a_stop(receiver: Receiver, sender: Sender) -> None:
    for slot in range(3):
        receiver.stop()
        sender.send(1, slot, created_ns=NOW_NS + slot * MS)
        receiver.start()
        wait_for(receiver, delivered=slot + 1)
    assert receiver.read()["value"].tolist() == [0, 1, 2]
