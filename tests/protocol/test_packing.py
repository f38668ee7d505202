"""Packing of copies in datagrams: packed by burst, alone when idle, equal strides. Two subjects."""

from __future__ import annotations

import pytest

from gridstat.core.rows import PORT_DATA, PORT_URGENT, ChannelSpec, Route, Term
from tests.protocol.grids import (
    HEADER,
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    assert_reconciled,
    datagram,
    event,
    events_in,
    periodic,
    told,
)

EVERY_SLOT = (Route(1, (Term(1),)),)


def core_with_mtu(make_core: MakeCore, mtu_bytes: int) -> Subject:
    """Variables 1 to 199 are periodic, 200 to 209 are alerts; all go to channel 1."""
    core = make_core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_channel(ChannelSpec(1, mtu_bytes=mtu_bytes))
    core.commit(
        [
            *(periodic(v, 10, routes=EVERY_SLOT) for v in range(1, 200)),
            *(aperiodic(v, is_urgent=True, routes=EVERY_SLOT) for v in range(200, 210)),
        ]
    )
    return core


def burst(*events: bytes) -> bytes:
    return datagram(PUBLISHER, *events)


def sizes(outputs: list[tuple[int, bytes]]) -> list[int]:
    return [len(octets) for _, octets in outputs]


@pytest.mark.feature("S0-17")
def test_a_burst_of_four_events_leaves_in_one_datagram(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 1_232)
    core.inject(burst(*(event(v, NOW_NS) for v in range(1, 5))), now_ns=NOW_NS)
    outputs = core.take_output(1)
    assert len(outputs) == 1
    assert told(outputs) == [(v, NOW_NS) for v in range(1, 5)]


@pytest.mark.feature("S0-17")
def test_a_lone_event_leaves_at_once_without_waiting_for_company(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 1_232)
    for variable_id in (1, 2, 3):
        core.inject(burst(event(variable_id, NOW_NS)), now_ns=NOW_NS)
        assert told(core.take_output(1)) == [(variable_id, NOW_NS)]


@pytest.mark.feature("S3-19")
@pytest.mark.parametrize("events_per_datagram", [1, 4])
def test_n_events_in_each_of_x_datagrams_are_accounted_as_n_times_x_events(
    subject: MakeCore, events_per_datagram: int
) -> None:
    core = core_with_mtu(subject, 1_232)
    for slot in range(25):
        created_ns = NOW_NS + slot * 10 * MS
        events = [event(v, created_ns) for v in range(1, events_per_datagram + 1)]
        core.inject(burst(*events), now_ns=created_ns)
    counters, channel = core.counters(), core.channel_counters(1)
    assert counters["datagrams_in"] == channel["datagrams_out"] == 25
    assert counters["in"] == counters["dispatched"] == 25 * events_per_datagram
    assert channel["sent"] == 25 * events_per_datagram
    assert counters["bytes_in"] == channel["bytes_out"] == 25 * (16 + 24 * events_per_datagram)
    assert_reconciled(core, [1])


def test_a_datagram_is_filled_to_the_mtu_and_not_beyond(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 16 + 3 * 24 + 23)
    core.inject(burst(*(event(v, NOW_NS) for v in range(1, 9))), now_ns=NOW_NS)
    outputs = core.take_output(1)
    assert [len(events_in(octets)) for _, octets in outputs] == [3, 3, 2]
    assert sizes(outputs) == [88, 88, 64]
    headers = [HEADER.unpack_from(octets) for _, octets in outputs]
    assert [(length, channel, counter) for _, _, length, channel, counter in headers] == [
        (88, 1, 1),
        (88, 1, 2),
        (64, 1, 3),
    ]


def test_segments_are_padded_to_the_stride_of_the_first_but_the_last_is_not(
    subject: MakeCore,
) -> None:
    core = core_with_mtu(subject, 16 + 5 * 24)
    options = (0, 3, 2, 1, 1, 1)
    core.inject(
        burst(*(event(v, NOW_NS, options=n) for v, n in enumerate(options, start=1))), now_ns=NOW_NS
    )
    outputs = core.take_output(1)
    assert [len(events_in(octets)) for _, octets in outputs] == [2, 2, 2]
    assert sizes(outputs) == [136, 136, 112]
    lengths = [HEADER.unpack_from(octets)[2] for _, octets in outputs]
    assert lengths == [136, 136, 112]
    core.inject(
        burst(
            *(event(v, NOW_NS + 10 * MS, options=n) for v, n in enumerate((1, 2, 2, 2, 0), start=1))
        ),
        now_ns=NOW_NS,
    )
    outputs = core.take_output(1)
    lengths = [HEADER.unpack_from(octets)[2] for _, octets in outputs]
    assert (lengths, sizes(outputs)) == ([136, 88, 112], [136, 136, 112])
    assert set(outputs[1][1][88:]) == {0}


def test_an_event_larger_than_the_stride_starts_a_new_run(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 16 + 5 * 24)
    options = (2, 3, 0, 2, 1)
    core.inject(
        burst(*(event(v, NOW_NS, options=n) for v, n in enumerate(options, start=1))), now_ns=NOW_NS
    )
    outputs = core.take_output(1)
    lengths = [HEADER.unpack_from(octets)[2] for _, octets in outputs]
    # 3 events of 72, 96 + 24, 72 + 48 bytes: the second is longer than the first one's stride.
    assert lengths == sizes(outputs) == [88, 136, 136]


def test_a_run_has_at_most_64_segments(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 16 + 2 * 24)
    events = [event(v, NOW_NS) for v in range(1, 130)]
    large = event(130, NOW_NS, options=1)
    core.inject(burst(*events, large), now_ns=NOW_NS)
    outputs = core.take_output(1)
    # The 64th segment is full at 128 events; the next run starts with one short segment, whose
    # length, and not the MTU, is then the stride that the larger event does not fit into.
    assert [len(events_in(octets)) for _, octets in outputs] == [2] * 64 + [1, 1]
    assert sizes(outputs) == [64] * 64 + [40, 64]


def test_a_run_has_at_most_65000_bytes(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 2_048)
    large = [event(v, NOW_NS, options=44) for v in range(1, 61)]
    small = [event(v, NOW_NS) for v in range(61, 89)]
    core.inject(burst(*large, *small), now_ns=NOW_NS)
    # 60 strides of 1,096 bytes would be 65,760; so the 60th event starts a new run, whose first
    # segment may again grow to the MTU and takes all the small ones along.
    outputs = core.take_output(1)
    assert sizes(outputs) == [1_096] * 59 + [16 + 1_080 + 28 * 24]
    assert [one for _, octets in outputs for one in events_in(octets)] == large + small
    assert_reconciled(core, [1])


def test_an_event_larger_than_the_mtu_travels_alone_and_in_order(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 200)
    events = [event(1, NOW_NS), event(2, NOW_NS, options=255), event(3, NOW_NS)]
    core.inject(burst(*events), now_ns=NOW_NS)
    outputs = core.take_output(1)
    assert [events_in(octets) for _, octets in outputs] == [[each] for each in events]
    assert sizes(outputs) == [40, 16 + 6_144, 40]


def test_alerts_leave_first_and_on_their_own_port(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 1_232)
    core.inject(
        burst(event(1, NOW_NS), event(200, NOW_NS), event(2, NOW_NS), event(201, NOW_NS)),
        now_ns=NOW_NS,
    )
    outputs = core.take_output(1)
    assert [port for port, _ in outputs] == [PORT_URGENT, PORT_DATA]
    assert told(outputs) == [(v, NOW_NS) for v in (200, 201, 1, 2)]


def test_bytes_of_an_event_are_passed_on_untouched(subject: MakeCore) -> None:
    core = core_with_mtu(subject, 1_232)
    strange = bytearray(event(3, NOW_NS, sequence=65_535, value=-1, options=2))
    strange[13] = 0xFF  # All flags, reserved ones included.
    core.inject(burst(bytes(strange)) + b"padding", now_ns=NOW_NS)
    ((_, octets),) = core.take_output(1)
    assert events_in(octets) == [bytes(strange)]
