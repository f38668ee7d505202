"""Sealed channels of cores: what leaves, what is believed, and what forgers achieve. All subjects.

The reference and the compiled core with each backend of the machine go through the same cases.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.core.key_settings import DROPPED_KEYS_MAX, KEYS_MAX, TAG_BYTES
from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.errors import LayoutError, LimitReached, Misuse, UnknownName
from gridstat.model.wire_law import wire_bytes
from tests.protocol.grids import (
    HEADER,
    MS,
    NOW_NS,
    SMALL,
    Subject,
    aperiodic,
    assert_reconciled,
    datagram,
    event,
    events_in,
    told,
)
from tests.protocol.sealing import (
    LINK,
    OUT,
    MakeSealing,
    believed,
    key_of,
    opened,
    receiving,
    sealed,
    sending,
    state_of,
    subjects,
)

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST, SECOND = key_of(1), key_of(2)
SEALED = ChannelSpec(LINK, datagram_version=3, is_sealed=True)
WINDOW = 2_048


def publish(core: Subject, *events: bytes, counter: int = 1) -> list[tuple[int, bytes]]:
    core.inject(datagram(1, *events, counter=counter), now_ns=NOW_NS)
    return core.take_output(LINK)


@subjects
def test_an_event_leaves_encrypted_and_comes_out_as_it_was(make: MakeSealing) -> None:
    sender, receiver = sending(make), receiving(make, keys=(FIRST,))
    sender.set_sending_key(LINK, *FIRST)
    one = event(1, NOW_NS, value=77)
    [(port, octets)] = publish(sender, one)
    assert len(octets) == HEADER.size + len(one) + TAG_BYTES
    assert one[:8] not in octets
    assert events_in(opened(octets, FIRST)) == [one]
    receiver.inject(octets, port=port, now_ns=NOW_NS)
    assert told(receiver.take_output(OUT)) == [(1, NOW_NS)]
    assert receiver.counters()["in"] == 1
    assert receiver.receiving_state(LINK) == state_of(opened=(1,))
    assert sender.sending_state(LINK)["datagrams"] == 1
    assert_reconciled(sender, [LINK])


@subjects
def test_segments_of_a_run_have_one_length_with_the_tag_behind_the_events(
    make: MakeSealing,
) -> None:
    sender = sending(make, 1, spec=replace(SEALED, mtu_bytes=200))
    sender.set_sending_key(LINK, *FIRST)
    events = [event(1, NOW_NS + i * MS, options=i % 3) for i in range(24)]
    outputs = publish(sender, *events)
    lengths = [len(octets) for _, octets in outputs]
    assert len(outputs) > 5
    assert max(lengths) <= 200
    assert [one for _, octets in outputs for one in events_in(opened(octets, FIRST))] == events
    padded = [o for _, o in outputs if HEADER.unpack_from(o)[2] + TAG_BYTES < len(o)]
    assert padded, "some segment was filled up to the stride"
    counters = [HEADER.unpack_from(octets)[4] for _, octets in outputs]
    assert counters == list(range(1, len(outputs) + 1))
    assert sender.channel_counters(LINK)["bytes_out"] == sum(lengths)
    assert sender.channel_counters(LINK)["sent"] == 24


@subjects
@pytest.mark.parametrize("options", [0, 5, 51, 255])
def test_an_event_larger_than_the_mtu_is_sealed_alone(make: MakeSealing, options: int) -> None:
    sender, receiver = sending(make, spec=replace(SEALED, mtu_bytes=64)), receiving(make)
    receiver.set_receiving_keys(LINK, [FIRST])
    sender.set_sending_key(LINK, *FIRST)
    one = event(1, NOW_NS, options=options)
    [(port, octets)] = publish(sender, one)
    receiver.inject(octets, port=port, now_ns=NOW_NS)
    assert [each for _, o in receiver.take_output(OUT) for each in events_in(o)] == [one]
    assert sender.channel_counters(LINK)["sent"] == 1


@subjects
def test_every_changed_bit_is_a_forgery_that_moves_nothing(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    receiver.inject(sealed(event(1, NOW_NS), counter=1, key=FIRST), now_ns=NOW_NS)
    believed(receiver)
    before = believed(receiver)
    good = sealed(event(1, NOW_NS + MS), counter=2, key=FIRST)
    rejects = 0
    for bit in range(8 * len(good)):
        if 16 <= bit < 32:
            continue  # Another length: malformed, or cut off.
        forged = bytearray(good)
        forged[bit // 8] ^= 1 << bit % 8
        if forged[0] != 3:
            continue  # Another version: not sealed.
        receiver.inject(bytes(forged), now_ns=NOW_NS)
        rejects += 1
    assert believed(receiver) == before
    counters = receiver.counters()
    assert counters["sealed_unknown_epoch"] == 8
    assert counters["sealed_unknown_channel"] == 32
    assert counters["sealed_replayed"] == 1, "one bit makes counter 2 a 0, which never is new"
    reasons = ("unknown_epoch", "unknown_channel", "replayed", "forged")
    assert sum(counters[f"sealed_{why}"] for why in reasons) == rejects
    receiver.inject(good, now_ns=NOW_NS)
    assert told(receiver.take_output(OUT)) == [(1, NOW_NS + MS)]


@subjects
def test_a_truncated_datagram_is_malformed_or_forged(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    good = sealed(event(1, NOW_NS, options=2), counter=1, key=FIRST)
    for size in range(len(good)):
        receiver.inject(good[:size], now_ns=NOW_NS)
    shorter = bytearray(good)
    shorter[2:4] = (HEADER.size + 24).to_bytes(2, "big")
    receiver.inject(bytes(shorter), now_ns=NOW_NS)
    counters = receiver.counters()
    assert counters["malformed_short"] == HEADER.size
    assert counters["malformed_length"] == len(good) - HEADER.size
    assert counters["sealed_forged"] == 1
    assert receiver.take_output(OUT) == []
    assert receiver.source_states()[LINK]["datagrams"] == 0


@subjects
def test_a_recording_played_back_is_dropped_whole(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    rng = random.Random(1)
    recording = [
        sealed(event(1, NOW_NS + i * MS), counter=i + 1, key=FIRST) for i in range(3 * WINDOW)
    ]
    for octets in recording:
        receiver.inject(octets, now_ns=NOW_NS)
    before = believed(receiver)
    assert len(before.outputs) == 3 * WINDOW
    before = believed(receiver)
    for octets in rng.sample(recording, len(recording)):
        receiver.inject(octets, now_ns=NOW_NS + 3_600_000 * MS)
    assert receiver.counters()["sealed_replayed"] == 3 * WINDOW
    assert believed(receiver) == before


@subjects
def test_a_datagram_of_another_channel_or_port_or_key_is_forged(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    one = event(1, NOW_NS)
    to_other = sealed(one, counter=1, key=FIRST, to=LINK + 1)
    moved = to_other[:4] + LINK.to_bytes(4, "big") + to_other[8:]
    receiver.inject(moved, now_ns=NOW_NS)
    receiver.inject(sealed(one, counter=1, key=FIRST, port=1), port=0, now_ns=NOW_NS)
    receiver.inject(sealed(one, counter=1, key=FIRST, port=0), port=1, now_ns=NOW_NS)
    receiver.inject(sealed(one, counter=1, key=key_of(1, variant=9)), now_ns=NOW_NS)
    counters = receiver.counters()
    assert (counters["sealed_forged"], counters["in"]) == (4, 0)
    receiver.inject(sealed(one, counter=1, key=FIRST), now_ns=NOW_NS)
    assert told(receiver.take_output(OUT)) == [(1, NOW_NS)]


@subjects
def test_nothing_is_negotiated_down(make: MakeSealing) -> None:
    """A sealed source takes no plain datagram, a plain source no sealed one."""
    receiver = receiving(make, 1, 2, keys=(FIRST,))
    receiver.open_source(9)
    one = event(1, NOW_NS)
    before = believed(receiver)
    for version in (1, 2):
        receiver.inject(datagram(LINK, one, version=version), now_ns=NOW_NS)
    receiver.inject(datagram(LINK, version=2), now_ns=NOW_NS)
    receiver.inject(sealed(one, counter=1, key=FIRST, to=9), now_ns=NOW_NS)
    receiver.inject(sealed(one, counter=1, key=FIRST, to=10), now_ns=NOW_NS)
    assert believed(receiver) == before
    counters = receiver.counters()
    assert (counters["sealed_plain"], counters["sealed_unknown_channel"]) == (3, 2)
    receiver.inject(datagram(9, event(2, NOW_NS)), now_ns=NOW_NS)
    assert told(receiver.take_output(OUT)) == [(2, NOW_NS)]


@subjects
def test_the_sender_changes_its_key_in_mid_stream(make: MakeSealing) -> None:
    sender, receiver = sending(make), receiving(make, keys=(FIRST, SECOND))
    sent = []
    for number in range(20):
        if number % 5 == 0:
            sender.set_sending_key(LINK, *(FIRST if number % 10 == 0 else SECOND))
        sent += publish(sender, event(1, NOW_NS + number * MS), counter=number + 1)
    epochs = [octets[1] for _, octets in sent]
    assert epochs == [1] * 5 + [2] * 5 + [1] * 5 + [2] * 5
    assert [HEADER.unpack_from(octets)[4] for _, octets in sent] == list(range(1, 21))
    for port, octets in sent:
        receiver.inject(octets, port=port, now_ns=NOW_NS)
    assert len(told(receiver.take_output(OUT))) == 20
    assert receiver.source_states()[LINK]["lost"] == 0
    assert receiver.receiving_state(LINK)["epochs"] == (1, 2)
    assert sender.sending_state(LINK) == {
        "epoch": 2,
        "datagrams": 5,
        "first_counter": 1,
        "newest_counter": 20,
    }


@subjects
def test_a_key_that_stays_keeps_its_windows_and_one_that_went_opens_nothing(
    make: MakeSealing,
) -> None:
    receiver = receiving(make, keys=(FIRST,))
    octets = sealed(event(1, NOW_NS), counter=5, key=FIRST)
    receiver.inject(octets, now_ns=NOW_NS)
    receiver.set_receiving_keys(LINK, [SECOND, FIRST])
    receiver.inject(octets, now_ns=NOW_NS)
    assert receiver.counters()["sealed_replayed"] == 1
    receiver.set_receiving_keys(LINK, [SECOND])
    receiver.inject(octets, now_ns=NOW_NS)
    assert receiver.counters()["sealed_unknown_epoch"] == 1
    # The same epoch with another key begins anew, and the old datagram does not fit it.
    receiver.set_receiving_keys(LINK, [key_of(1, variant=3)])
    receiver.inject(octets, now_ns=NOW_NS)
    assert receiver.counters()["sealed_forged"] == 1
    receiver.inject(
        sealed(event(1, NOW_NS + MS), counter=5, key=key_of(1, variant=3)), now_ns=NOW_NS
    )
    assert receiver.counters()["in"] == 2


@subjects
def test_an_authentic_epoch_is_told_once(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    for counter in (1, 2):
        octets = sealed(event(1, NOW_NS + counter), counter=counter, key=FIRST)
        receiver.inject(octets, now_ns=NOW_NS)
        assert receiver.receiving_state(LINK) == state_of(opened=(1,))
        assert receiver.receiving_state(LINK) == state_of()


@subjects
def test_unknown_epochs_are_told_once(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    for epoch in (7, 255, 0, 7):
        receiver.inject(sealed(event(1, NOW_NS), counter=1, key=key_of(epoch)), now_ns=NOW_NS)
    assert receiver.receiving_state(LINK) == state_of(unknown=(0, 7, 255))
    assert receiver.receiving_state(LINK) == state_of()
    assert receiver.counters()["sealed_unknown_epoch"] == 4


@subjects
def test_a_key_that_was_dropped_and_comes_back_opens_nothing_again(make: MakeSealing) -> None:
    """An epoch on trial opens a datagram; its trial ends, and it is tried again."""
    receiver = receiving(make, keys=(FIRST, SECOND))
    octets = sealed(event(1, NOW_NS), counter=1_000, key=SECOND)
    receiver.inject(octets, now_ns=NOW_NS)
    receiver.inject(sealed(event(1, NOW_NS + MS), counter=77, key=FIRST), now_ns=NOW_NS)
    receiver.set_receiving_keys(LINK, [FIRST])
    assert receiver.receiving_state(LINK) == state_of(opened=(1,), dropped=(2,))
    receiver.set_receiving_keys(LINK, [FIRST, SECOND])
    before = believed(receiver)
    receiver.inject(octets, now_ns=NOW_NS)
    assert believed(receiver) == replace(before, outputs=[])
    assert receiver.counters()["sealed_replayed"] == 1
    receiver.inject(sealed(event(1, NOW_NS + 2 * MS), counter=1_001, key=SECOND), now_ns=NOW_NS)
    assert receiver.receiving_state(LINK) == state_of(opened=(2,))


@subjects
def test_a_dropped_key_is_kept_with_its_windows_until_it_was_told_what_it_opened(
    make: MakeSealing,
) -> None:
    """Whoever accepts it after that accepts all it has opened: it answers for that itself."""
    receiver = receiving(make, keys=(FIRST,))
    octets = sealed(event(1, NOW_NS), counter=5, key=FIRST)
    receiver.inject(octets, now_ns=NOW_NS)
    for count in range(1, 4):
        for _ in range(3):  # Other keys come and go meanwhile.
            receiver.set_receiving_keys(LINK, [SECOND])
            receiver.set_receiving_keys(LINK, [])
        receiver.set_receiving_keys(LINK, [FIRST])
        receiver.inject(octets, now_ns=NOW_NS)
        assert receiver.counters()["sealed_replayed"] == count
    receiver.set_receiving_keys(LINK, [])
    assert receiver.receiving_state(LINK)["dropped_epochs"] == (1,)
    assert receiver.receiving_state(LINK) == state_of()
    receiver.set_receiving_keys(LINK, [FIRST])
    receiver.inject(octets, now_ns=NOW_NS)
    assert receiver.counters()["sealed_replayed"] == 3


@subjects
def test_few_dropped_keys_are_kept_if_nobody_asks_what_they_opened(make: MakeSealing) -> None:
    receiver = receiving(make)
    recorded = []
    for epoch in range(DROPPED_KEYS_MAX + 2):
        key = key_of(epoch)
        receiver.set_receiving_keys(LINK, [key])
        recorded.append(sealed(event(1, NOW_NS + epoch * MS), counter=9, key=key))
        receiver.inject(recorded[-1], now_ns=NOW_NS)
    receiver.set_receiving_keys(LINK, [])
    receiver.set_receiving_keys(LINK, [key_of(0), key_of(1), key_of(DROPPED_KEYS_MAX + 1)])
    for at in (1, DROPPED_KEYS_MAX + 1, 0):
        receiver.inject(recorded[at], now_ns=NOW_NS)
    assert receiver.counters()["sealed_replayed"] == 2, "the oldest was forgotten"


@subjects
def test_all_epochs_that_opened_something_are_told(make: MakeSealing) -> None:
    keys = [key_of(epoch) for epoch in (0, 63, 64, 255)]
    receiver = receiving(make, keys=tuple(keys))
    for counter in (1, 2):
        for key in (keys[2], keys[3], keys[1]):
            receiver.inject(sealed(event(1, NOW_NS), counter=counter, key=key), now_ns=NOW_NS)
    receiver.set_receiving_keys(LINK, keys[2:])
    assert receiver.receiving_state(LINK) == state_of(opened=(64, 255), dropped=(63,))
    assert receiver.receiving_state(LINK) == state_of()


@subjects
def test_an_urgent_datagram_read_first_leaves_those_that_wait_at_the_data_port_new(
    make: MakeSealing,
) -> None:
    """The ports share the counter, and each has a window of its own."""
    receiver = receiving(make, keys=(FIRST,))
    receiver.commit([aperiodic(2, is_urgent=True, routes=(Route(OUT, (Term(1),)),))])
    urgent = sealed(event(2, NOW_NS), counter=3 * WINDOW, key=FIRST, port=1)
    receiver.inject(urgent, port=1, now_ns=NOW_NS)
    for number in range(1, 3 * WINDOW):
        octets = sealed(event(1, NOW_NS + number * MS), counter=number, key=FIRST)
        receiver.inject(octets, now_ns=NOW_NS)
    receiver.inject(urgent, port=1, now_ns=NOW_NS)
    counters = receiver.counters()
    assert (counters["dispatched"], counters["sealed_replayed"]) == (3 * WINDOW, 1)


@subjects
@pytest.mark.parametrize("bandwidth", [0, 10**6])
def test_without_a_key_nothing_leaves_and_all_is_counted(make: MakeSealing, bandwidth: int) -> None:
    spec = replace(SEALED, bandwidth_bytes_per_s=bandwidth, probe_interval_ns=10 * MS)
    sender = sending(make, spec=spec)
    assert publish(sender, event(1, NOW_NS), event(1, NOW_NS + MS)) == []
    sender.pump(NOW_NS + 10 * MS)
    assert sender.take_output(LINK) == []
    counters = sender.channel_counters(LINK)
    assert (counters["due"], counters["no_key"], counters["probes_failed"]) == (2, 2, 1)
    assert counters["queued"] == counters["bytes_out"] == 0
    sender.set_sending_key(LINK, *FIRST)
    [(_, octets)] = publish(sender, event(1, NOW_NS + 2 * MS), counter=2)
    assert HEADER.unpack_from(opened(octets, FIRST))[4] == 1
    sender.clear_sending_key(LINK)
    assert publish(sender, event(1, NOW_NS + 3 * MS), counter=3) == []
    assert sender.channel_counters(LINK)["no_key"] == 3
    assert sender.sending_state(LINK)["epoch"] == -1
    assert_reconciled(sender, [LINK])


@subjects
def test_a_probe_is_sealed_too_and_a_sign_of_life(make: MakeSealing) -> None:
    sender, receiver = (
        sending(make, spec=replace(SEALED, probe_interval_ns=10 * MS)),
        receiving(make, keys=(FIRST,)),
    )
    sender.set_sending_key(LINK, *FIRST)
    sender.pump(NOW_NS)
    [(port, probe)] = sender.take_output(LINK)
    assert (port, len(probe)) == (0, HEADER.size + TAG_BYTES)
    for octets in (probe, probe, probe[:16] + bytes(16)):
        receiver.inject(octets, now_ns=NOW_NS)
    state = receiver.source_states()[LINK]
    assert (state["probes"], state["datagrams"], state["newest_counter"]) == (1, 1, 1)
    assert receiver.counters()["sealed_replayed"] == 2
    receiver.inject(probe[:15] + b"\2" + bytes(16), now_ns=NOW_NS)
    assert receiver.counters()["sealed_forged"] == 1


@subjects
def test_a_line_is_charged_for_the_tag(make: MakeSealing) -> None:
    """Datagrams of one event leave exactly as often as their bytes with the tag allow."""
    size = wire_bytes(HEADER.size + 24 + TAG_BYTES, 64, is_ipv6=False)
    spec = replace(SEALED, mtu_bytes=64, bandwidth_bytes_per_s=size * 100)
    sender = sending(make, spec=spec)
    sender.set_sending_key(LINK, *FIRST)
    publish(sender, *(event(1, NOW_NS + i * MS) for i in range(10)))
    for step in range(1, 6):
        sender.pump(NOW_NS + step * 10 * MS - 2 * MS - 1)
        early = sender.take_output(LINK)
        sender.pump(NOW_NS + step * 10 * MS)
        late = sender.take_output(LINK)
        assert len(early) + len(late) == 1


@subjects
@pytest.mark.parametrize("bandwidth", [0, 10**6])
@pytest.mark.parametrize("is_sealed", [False, True])
def test_a_held_channel_sends_probes_alone_until_it_is_released(
    make: MakeSealing, bandwidth: int, is_sealed: bool
) -> None:
    spec = ChannelSpec(
        LINK,
        datagram_version=3 if is_sealed else 2,
        is_sealed=is_sealed,
        bandwidth_bytes_per_s=bandwidth,
        probe_interval_ns=10 * MS,
        probes_only_when_idle=True,
        is_held=True,
        counter_start=2**47 + 11,
    )
    sender = sending(make, spec=spec)
    if is_sealed:
        sender.set_sending_key(LINK, *FIRST)
    for step in range(5):
        assert publish(sender, event(1, NOW_NS + step * MS), counter=step + 1) == []
        sender.pump(NOW_NS + step * 10 * MS)
        [(_, probe)] = sender.take_output(LINK)
        assert HEADER.unpack_from(probe)[2:] == (HEADER.size, LINK, 2**47 + 12 + step)
    counters = sender.channel_counters(LINK)
    assert (counters["due"], counters["unproven"], counters["probes_sent"]) == (5, 5, 5)
    state = sender.sending_state(LINK)
    assert (state["first_counter"], state["newest_counter"]) == (2**47 + 12, 2**47 + 16)
    sender.release_channel(LINK)
    now_ns = NOW_NS + 49 * MS
    sender.inject(datagram(1, event(1, now_ns), counter=6), now_ns=now_ns)
    [(_, octets)] = sender.take_output(LINK)
    assert HEADER.unpack_from(octets)[4] == 2**47 + 17
    assert_reconciled(sender, [LINK])


@subjects
def test_a_channel_held_again_sends_probes_or_nothing(make: MakeSealing) -> None:
    sender = sending(make, spec=replace(SEALED, probe_interval_ns=10 * MS))
    sender.set_sending_key(LINK, *FIRST)
    for step, (is_probed, sent) in enumerate([(True, 1), (False, 0), (True, 1)], start=1):
        now_ns = NOW_NS + step * 20 * MS
        sender.hold_channel(LINK, is_probed=is_probed)
        sender.inject(datagram(1, event(1, now_ns), counter=step), now_ns=now_ns)
        sender.pump(now_ns)
        assert [len(octets) for _, octets in sender.take_output(LINK)] == [32] * sent
    sender.release_channel(LINK)
    assert len(publish(sender, event(1, NOW_NS + 99 * MS), counter=9)) == 1
    assert sender.channel_counters(LINK)["unproven"] == 3
    core = make(SMALL)
    core.open_channel(ChannelSpec(LINK))
    with pytest.raises(Misuse, match="cannot be held"):
        core.hold_channel(LINK, is_probed=True)


@subjects
def test_a_channel_that_probes_only_when_held_is_quiet_once_it_is_released(
    make: MakeSealing,
) -> None:
    spec = replace(SEALED, probe_interval_ns=10 * MS, is_held=True, probes_only_when_held=True)
    sender = sending(make, spec=spec)
    sender.set_sending_key(LINK, *FIRST)
    sender.pump(NOW_NS)
    assert len(sender.take_output(LINK)) == 1
    sender.release_channel(LINK)
    sender.pump(NOW_NS + 100 * MS)
    assert sender.take_output(LINK) == []
    sender.hold_channel(LINK, is_probed=True)
    sender.pump(NOW_NS + 100 * MS)
    assert len(sender.take_output(LINK)) == 1


@subjects
def test_a_reopened_channel_goes_on_counting_and_has_no_key(make: MakeSealing) -> None:
    sender = sending(make)
    sender.set_sending_key(LINK, *FIRST)
    publish(sender, event(1, NOW_NS))
    sender.close_channel(LINK)
    sender.open_channel(replace(SEALED, counter_start=100))
    assert publish(sender, event(1, NOW_NS + MS), counter=2) == []
    sender.set_sending_key(LINK, *FIRST)
    [(_, octets)] = publish(sender, event(1, NOW_NS + 2 * MS), counter=3)
    assert HEADER.unpack_from(octets)[4] == 102


@subjects
def test_counters_that_are_used_up_are_refused(make: MakeSealing) -> None:
    core = make(SMALL)
    most = replace(SEALED, counter_start=2**48 - 1)
    core.open_channel(most)
    core.close_channel(LINK)
    for wrong in (-1, 2**48):
        with pytest.raises(LayoutError, match="48 bits"):
            core.open_channel(replace(SEALED, counter_start=wrong))
    for _ in range(2**15 - 1):
        core.open_channel(most)
        core.close_channel(LINK)
    core.open_channel(replace(SEALED, counter_start=2**15 - 1))
    core.close_channel(LINK)
    with pytest.raises(LimitReached, match="used up"):
        core.open_channel(replace(SEALED, counter_start=1))


@subjects
def test_a_source_that_is_opened_plain_forgets_its_keys(make: MakeSealing) -> None:
    receiver = receiving(make, keys=(FIRST,))
    receiver.open_source(LINK)
    with pytest.raises(Misuse, match="not sealed"):
        receiver.receiving_state(LINK)
    receiver.open_source(LINK, is_sealed=True)
    receiver.inject(sealed(event(1, NOW_NS), counter=1, key=FIRST), now_ns=NOW_NS)
    assert receiver.counters()["sealed_unknown_epoch"] == 1


@subjects
def test_keys_that_cannot_be_are_refused(make: MakeSealing) -> None:
    core = make(SMALL)
    core.open_channel(ChannelSpec(1))
    core.open_channel(SEALED)
    core.open_source(2)
    core.open_source(3, is_sealed=True)
    for wrong in ((-1, *FIRST[1:]), (256, *FIRST[1:]), (1, b"short", b"salt"), (1, bytes(16), b"")):
        with pytest.raises(LayoutError):
            core.set_sending_key(LINK, *wrong)
        with pytest.raises(LayoutError):
            core.set_receiving_keys(3, [wrong])
    with pytest.raises(LayoutError, match="same epoch"):
        core.set_receiving_keys(3, [FIRST, key_of(1, variant=2)])
    with pytest.raises(LimitReached):
        core.set_receiving_keys(3, [key_of(epoch) for epoch in range(KEYS_MAX + 1)])
    core.set_receiving_keys(3, [key_of(epoch) for epoch in range(KEYS_MAX)])
    unsealed: list[Callable[[], object]] = [
        lambda: core.set_sending_key(1, *FIRST),
        lambda: core.clear_sending_key(1),
        lambda: core.set_receiving_keys(2, [FIRST]),
        lambda: core.receiving_state(2),
    ]
    for call in unsealed:
        with pytest.raises(Misuse, match="not sealed"):
            call()
    unknown: list[Callable[[], object]] = [
        lambda: core.set_sending_key(9, *FIRST),
        lambda: core.set_receiving_keys(9, [FIRST]),
        lambda: core.receiving_state(9),
        lambda: core.sending_state(9),
        lambda: core.release_channel(9),
    ]
    for call in unknown:
        with pytest.raises(UnknownName):
            call()


@subjects
def test_a_chain_of_sealed_and_plain_channels_loses_nothing(make: MakeSealing) -> None:
    """Three cores, the first link sealed, the second plain; alerts overtake on their own port."""
    sender, receiver = sending(make, 1), receiving(make, 1, keys=(FIRST,))
    sender.commit([aperiodic(2, is_urgent=True, routes=(Route(LINK, (Term(1),)),))])
    receiver.commit([aperiodic(2, is_urgent=True, routes=(Route(OUT, (Term(1),)),))])
    sender.set_sending_key(LINK, *FIRST)
    for number in range(50):
        alert = event(2, NOW_NS + number * MS, sequence=number)
        for port, octets in publish(
            sender, event(1, NOW_NS + number * MS), alert, counter=number + 1
        ):
            assert events_in(opened(octets, FIRST, port))
            receiver.inject(octets, port=port, now_ns=NOW_NS)
    outputs = receiver.take_output(OUT)
    assert len(told(outputs)) == 100
    assert {port for port, _ in outputs} == {0, 1}
    assert receiver.source_states()[LINK]["lost"] == 0
