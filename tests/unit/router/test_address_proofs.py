"""Proofs of end-points' addresses: what the edge asks, believes, and stops."""

from __future__ import annotations

import msgspec

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    AddressProved,
    AddressRefused,
    AskAddress,
    ProveAddress,
)
from gridstat.net.command.machine import Note, Send, SetTimer
from gridstat.net.command.router_messages import ChangeTable, ChannelOrder
from gridstat.router.address_proofs import AGAIN_NS_MAX, PROOF_NS, WRONG_MAX, AddressProofs
from gridstat.router.agent_events import AddressChecked, CheckAddress, HoldChannel

READER = "c1/reader"
ORDER = ChannelOrder(
    channel_id=7,
    to=READER,
    host="10.0.0.9",
    data_port=700,
    urgent_port=701,
    datagram_version=3,
    is_endpoint=True,
)
ASKED = Send(f"endpoint/{READER}", AskAddress(channel_id=7))
PROVED = Send(f"endpoint/{READER}", AddressProved(channel_id=7))
PROBED, STOPPED = HoldChannel(7, is_probed=True), HoldChannel(7, is_probed=False)


def table(*orders: ChannelOrder, closed: tuple[int, ...] = ()) -> ChangeTable:
    return ChangeTable(term=1, number=1, channels=orders, closed_channels=closed)


def waiting() -> AddressProofs:
    """Proofs with one channel that was asked for at time 0."""
    proofs = AddressProofs()
    found = proofs.table_changed(table(ORDER), {READER}, 0)
    assert found[:2] == [PROBED, ASKED]
    assert isinstance(found[2], SetTimer)
    return proofs


def proved() -> AddressProofs:
    proofs = waiting()
    assert proofs.received(READER, ProveAddress(channel_id=7, counter=5)) == [CheckAddress(7, 5)]
    assert proofs.checked(AddressChecked(7, is_proved=True), 0) == [PROVED]
    assert proofs.is_proved(7)
    return proofs


def test_a_counter_that_was_sent_proves_the_address() -> None:
    proofs = proved()
    assert proofs.step(PROOF_NS + 1) == []
    assert proofs.departed(READER) == []
    found = proofs.arrived(READER, PROOF_NS + 2)
    assert found == [PROVED], "the same address needs no second proof"


def test_a_wrong_counter_is_asked_for_again_but_not_for_ever() -> None:
    proofs = waiting()
    for _ in range(WRONG_MAX - 1):
        assert proofs.checked(AddressChecked(7, is_proved=False), 0) == [ASKED]
    stopped, told, *_ = proofs.checked(AddressChecked(7, is_proved=False), 0)
    assert stopped == STOPPED
    assert isinstance(told, Send)
    assert isinstance(told.message, AddressRefused)
    assert proofs.received(READER, ProveAddress(channel_id=7, counter=5)) == []
    assert proofs.refused == 1


def test_without_a_proof_the_channel_is_stopped_after_five_seconds_in_words() -> None:
    proofs = waiting()
    assert [type(each) for each in proofs.step(PROOF_NS - 1)] == [SetTimer]
    stopped, told, note, _ = proofs.step(PROOF_NS)
    assert stopped == STOPPED
    assert isinstance(told, Send)
    assert told.peer == f"endpoint/{READER}"
    assert isinstance(told.message, AddressRefused)
    assert "10.0.0.9 port 700" in told.message.reason
    assert "within 5 s" in told.message.reason
    assert isinstance(note, Note)
    assert note.is_warning
    assert [type(each) for each in proofs.step(PROOF_NS + NS_PER_S)] == [SetTimer]


def test_a_stopped_proof_begins_again_after_30_s_then_twice_as_long_up_to_10_min() -> None:
    proofs, now_ns, pauses_s = waiting(), 0, []
    for _ in range(7):
        now_ns += PROOF_NS
        stopped, told, *_ = proofs.step(now_ns)
        assert stopped == STOPPED
        assert isinstance(told, Send)
        assert isinstance(told.message, AddressRefused)
        refused_ns = now_ns
        while PROBED not in proofs.step(now_ns):
            now_ns += NS_PER_S
            assert now_ns - refused_ns <= AGAIN_NS_MAX, "it does not begin again"
        pauses_s.append((now_ns - refused_ns) // NS_PER_S)
        assert f"asks again in {pauses_s[-1]} s" in told.message.hint
    assert pauses_s == [30, 60, 120, 240, 480, 600, 600]
    assert proofs.received(READER, ProveAddress(channel_id=7, counter=5)) == [CheckAddress(7, 5)]
    assert proofs.checked(AddressChecked(7, is_proved=True), now_ns) == [PROVED]
    assert PROBED not in proofs.step(now_ns + AGAIN_NS_MAX)


def test_a_stopped_proof_does_not_begin_again_without_a_session() -> None:
    proofs = waiting()
    proofs.step(PROOF_NS)
    assert proofs.departed(READER) == [STOPPED]
    assert proofs.step(PROOF_NS + AGAIN_NS_MAX) == []
    assert proofs.arrived(READER, AGAIN_NS_MAX)[:2] == [PROBED, ASKED]


def test_probes_stop_at_once_when_the_session_ends() -> None:
    proofs = waiting()
    assert proofs.departed(READER) == [STOPPED]
    assert proofs.received(READER, ProveAddress(channel_id=7, counter=5)) == []
    assert proofs.step(PROOF_NS) == []
    found = proofs.arrived(READER, 9 * NS_PER_S)
    assert found[:2] == [PROBED, ASKED], "the next session begins anew"
    assert proofs.step(9 * NS_PER_S + PROOF_NS)[0] == STOPPED


def test_a_channel_to_an_absent_end_point_sends_not_even_probes() -> None:
    proofs = AddressProofs()
    assert proofs.table_changed(table(ORDER), set(), 0) == [STOPPED]
    assert proofs.arrived(READER, 1)[:2] == [PROBED, ASKED]


def test_another_address_must_be_proved_anew() -> None:
    proofs = proved()
    assert proofs.table_changed(table(ORDER), {READER}, 1) == []
    moved = msgspec.structs.replace(ORDER, host="10.0.0.10")
    assert proofs.table_changed(table(moved), {READER}, 2)[:2] == [PROBED, ASKED]
    assert not proofs.is_proved(7)


def test_nobody_proves_for_another_end_point() -> None:
    proofs = waiting()
    assert proofs.received("c1/mallory", ProveAddress(channel_id=7, counter=5)) == []
    assert proofs.received(READER, ProveAddress(channel_id=8, counter=5)) == []


def test_channels_to_routers_and_plain_ones_are_not_asked_for() -> None:
    proofs = AddressProofs()
    to_router = msgspec.structs.replace(ORDER, is_endpoint=False)
    plain = msgspec.structs.replace(ORDER, channel_id=8, datagram_version=2)
    assert proofs.table_changed(table(to_router, plain), {READER}, 0) == []
    assert proofs.step(PROOF_NS) == []


def test_a_closed_channel_is_forgotten() -> None:
    proofs = waiting()
    assert proofs.table_changed(table(closed=(7,)), {READER}, 1) == []
    assert proofs.checked(AddressChecked(7, is_proved=True), 0) == []
    assert not proofs.is_proved(7)
    whole = msgspec.structs.replace(table(), begins_anew=True)
    proofs = proved()
    proofs.table_changed(whole, {READER}, 1)
    assert not proofs.is_proved(7)
