"""A channel with a declared bandwidth: strict order, bounded queues, exact accounts. Two subjects.

Time is virtual: the tests say what time it is, and pump.
"""

from __future__ import annotations

import socket
from collections import deque
from dataclasses import replace

import pytest

from gridstat.core.rows import PORT_DATA, PORT_URGENT, ChannelSpec, Flood, Limits, Route, Row, Term
from gridstat.model.wire_law import wire_bytes as law_bytes
from tests.protocol.grids import (
    EVENT,
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    assert_reconciled,
    datagram,
    drops,
    event,
    events_in,
    periodic,
    told,
)

MEGABIT = ChannelSpec(1, bandwidth_bytes_per_s=125_000, queue_events_max=32)
QUEUES = 9
UDP = socket.SOCK_DGRAM
CREDIT_NS = 2 * MS
"""Longest time that an idle line may catch up on."""

WIRE_BYTES = 28
EVENT_BYTES = 144
"""Size of a synchrophasor with five options."""


def paced_core(make_core: MakeCore, *specs: ChannelSpec, limits: Limits = SMALL) -> Subject:
    core = make_core(limits)
    core.open_source(PUBLISHER, is_publisher=True)
    for spec in specs:
        core.open_channel(spec)
    return core


def to(channel_id: int, priority: int) -> Route:
    return Route(channel_id, (Term(1),), priority)


def class_rows() -> list[Row]:
    """Variable 1 is an alert; variable 1 + p has priority p, content being 7 and replay 8."""
    streams = [periodic(1 + p, 1, routes=(to(1, p),)) for p in range(1, QUEUES)]
    return [aperiodic(1, is_urgent=True, routes=(to(1, 3),)), *streams]


class Line:
    """Follows a paced channel event by event: what waits in which class, what leaves when."""

    def __init__(self, core: Subject) -> None:
        self.core = core
        self.waiting: list[deque[int]] = [deque() for _ in range(QUEUES)]
        self.sent_by_class = [0] * QUEUES
        self.dropped_by_class = [0] * QUEUES
        self.wire_bytes = 0

    def offer(self, variable_id: int, created_ns: int, *, now_ns: int) -> None:
        full = self.core.channel_counters(1)["queue_full"]
        octets = event(variable_id, created_ns, sequence=created_ns % 65_536, options=5)
        self.core.inject(datagram(PUBLISHER, octets), now_ns=now_ns)
        if self.core.channel_counters(1)["queue_full"] > full:
            self.dropped_by_class[variable_id - 1] += 1
        else:
            self.waiting[variable_id - 1].append(created_ns)
        self.collect()

    def pump(self, now_ns: int) -> None:
        self.core.pump(now_ns)
        self.collect()

    def collect(self) -> None:
        """Check that every event that left was the first of the first class that waited."""
        for _, octets in self.core.take_output(1):
            self.wire_bytes += len(octets) + WIRE_BYTES
            for one in events_in(octets):
                created_ns, variable_id, *_ = EVENT.unpack_from(one)
                first = next(i for i, queue in enumerate(self.waiting) if queue)
                assert (variable_id - 1, created_ns) == (first, self.waiting[first].popleft())
                self.sent_by_class[first] += 1
        counters = self.core.channel_counters(1)
        assert counters["due"] == counters["sent"] + drops(counters) + counters["queued"]
        assert counters["queued"] == sum(map(len, self.waiting))
        assert max(map(len, self.waiting)) <= MEGABIT.queue_events_max


@pytest.mark.feature("S0-72", "S0-73")
def test_at_three_times_its_bandwidth_a_channel_serves_strictly_by_class_and_accounts_for_all(
    subject: MakeCore,
) -> None:
    core = paced_core(subject, MEGABIT)
    core.commit(class_rows())
    line = Line(core)
    offered = 0
    # Nine classes of 289 events a second each are 375,000 bytes a second, thrice the line.
    for step in range(2_600):
        now_ns = NOW_NS + step * 1_000_000_000 // 2_600
        line.pump(now_ns)
        variable_id = 1 + step * 4 % QUEUES
        line.offer(variable_id, NOW_NS + step * MS, now_ns=now_ns)
        offered += 1
    assert line.wire_bytes <= 125_000 + 2 * 125 + 1_260
    assert line.wire_bytes >= 125_000 * 0.98
    # Alerts, one to a datagram, and priority 1 pass whole; priority 2 gets what is left of the
    # line; of the others only a few slipped through before the first queue had filled.
    assert line.dropped_by_class[:2] == [0, 0]
    assert line.dropped_by_class == sorted(line.dropped_by_class)
    assert line.sent_by_class[2] > 200
    assert sum(line.sent_by_class[3:]) < 10
    end_ns = NOW_NS + 1_000_000_000
    while core.channel_counters(1)["queued"]:
        end_ns += MS
        line.pump(end_ns)
    counters = core.channel_counters(1)
    assert counters["due"] == offered == counters["sent"] + drops(counters)
    assert core.pool_free() == (SMALL.pool_small, SMALL.pool_large)
    assert_reconciled(core, [1])


@pytest.mark.feature("S0-73")
def test_an_alert_overtakes_all_that_is_queued_and_leaves_on_the_urgent_port(
    subject: MakeCore,
) -> None:
    core = paced_core(subject, MEGABIT)
    core.commit(class_rows())
    for variable_id in (9, 5, 3):
        for slot in range(20):
            created_ns = NOW_NS + slot * MS
            octets = event(variable_id, created_ns, options=5)
            core.inject(datagram(PUBLISHER, octets), now_ns=NOW_NS)
    core.take_output(1)
    core.inject(datagram(PUBLISHER, event(1, NOW_NS)), now_ns=NOW_NS)
    core.pump(NOW_NS + 100 * MS)
    core.pump(NOW_NS + 200 * MS)
    core.pump(NOW_NS + 300 * MS)
    outputs = core.take_output(1)
    assert outputs[0][0] == PORT_URGENT
    assert told(outputs[:1]) == [(1, NOW_NS)]
    assert {port for port, _ in outputs[1:]} == {PORT_DATA}
    variables = [variable_id for variable_id, _ in told(outputs[1:])]
    assert variables == sorted(variables)


@pytest.mark.feature("S0-72")
def test_a_full_queue_is_a_counted_drop_and_holds_nobody_else_up(subject: MakeCore) -> None:
    slow = replace(MEGABIT, bandwidth_bytes_per_s=1, queue_events_max=4)
    core = paced_core(subject, slow, ChannelSpec(2))
    core.commit([periodic(1, 1, routes=(to(1, 3), to(2, 3)))])
    for slot in range(20):
        created_ns = NOW_NS + slot * MS
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=NOW_NS)
        assert told(core.take_output(2)) == [(1, created_ns)]
    counters = core.channel_counters(1)
    assert (counters["sent"], counters["queued"], counters["queue_full"]) == (1, 4, 15)
    assert told(core.take_output(1)) == [(1, NOW_NS)]
    core.pump(NOW_NS + 10**13)
    assert told(core.take_output(1)) == [(1, NOW_NS + slot * MS) for slot in (1, 2, 3, 4)]
    assert_reconciled(core, [1, 2])


@pytest.mark.feature("S0-74")
def test_a_priority_changes_by_commit_while_events_flow_and_no_event_is_lost(
    subject: MakeCore,
) -> None:
    core = paced_core(subject, replace(MEGABIT, bandwidth_bytes_per_s=1_000))
    core.commit([periodic(1, 1, routes=(to(1, 2),)), periodic(2, 1, routes=(to(1, 5),))])

    def publish(*slots: int) -> None:
        for slot in slots:
            for variable_id in (2, 1):
                octets = event(variable_id, NOW_NS + slot * MS)
                core.inject(datagram(PUBLISHER, octets), now_ns=NOW_NS)

    def order() -> list[tuple[int, int]]:
        return [(v, (created - NOW_NS) // MS) for v, created in told(core.take_output(1))]

    publish(0, 1, 2)
    core.pump(NOW_NS + 1_000 * MS)
    assert order() == [(2, 0), (1, 0), (1, 1), (1, 2), (2, 1), (2, 2)]
    core.commit([periodic(1, 1, routes=(to(1, 6),)), periodic(2, 1, routes=(to(1, 1),))])
    publish(3, 4, 5)
    core.pump(NOW_NS + 2_000 * MS)
    assert order() == [(2, 3), (2, 4), (2, 5), (1, 3), (1, 4), (1, 5)]
    assert core.counters()["dispatched"] == 12


def test_what_is_queued_keeps_the_class_it_was_queued_with(subject: MakeCore) -> None:
    core = paced_core(subject, replace(MEGABIT, bandwidth_bytes_per_s=1_000, mtu_bytes=64))
    core.commit([periodic(1, 1, routes=(to(1, 5),))])
    for slot in range(3):
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)
    core.commit([periodic(1, 1, routes=(to(1, 1),))])
    core.inject(datagram(PUBLISHER, event(1, NOW_NS + 3 * MS)), now_ns=NOW_NS)
    for second in range(1, 5):
        core.pump(NOW_NS + second * 1_000 * MS)
    slots = [(created - NOW_NS) // MS for _, created in told(core.take_output(1))]
    assert slots == [0, 3, 1, 2]


@pytest.mark.feature("S3-16")
def test_a_tiny_pool_ends_in_counted_drops_and_recovers(subject: MakeCore) -> None:
    limits = replace(SMALL, pool_small=4, pool_large=1)
    core = paced_core(subject, replace(MEGABIT, bandwidth_bytes_per_s=100), limits=limits)
    small = periodic(1, 1, is_stamp_exempt=True, routes=(to(1, 3),))
    core.commit([small, periodic(2, 1, routes=(to(1, 4),))])
    for slot in range(10):
        created_ns = NOW_NS + slot * MS
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=NOW_NS)
    for slot in range(3):
        created_ns = NOW_NS + slot * MS
        core.inject(datagram(PUBLISHER, event(2, created_ns, options=10)), now_ns=NOW_NS)
    counters = core.channel_counters(1)
    assert (counters["sent"], counters["queued"], counters["pool_empty"]) == (1, 5, 7)
    assert core.pool_free() == (0, 0)
    core.pump(NOW_NS + 60_000 * MS)
    core.pump(NOW_NS + 120_000 * MS)
    assert core.pool_free() == (4, 1)
    core.inject(datagram(PUBLISHER, event(1, NOW_NS + 50 * MS)), now_ns=NOW_NS + 180_000 * MS)
    assert told(core.take_output(1))[-1] == (1, NOW_NS + 50 * MS)
    assert_reconciled(core, [1])


def test_one_buffer_serves_all_paced_channels_and_goes_home_with_the_last(
    subject: MakeCore,
) -> None:
    specs = [replace(MEGABIT, channel_id=i, bandwidth_bytes_per_s=10**i) for i in (1, 2, 3)]
    core = paced_core(subject, *specs)
    core.commit([periodic(1, 1, routes=tuple(to(i, 3) for i in (1, 2, 3)))])
    for slot in range(3):
        created_ns = NOW_NS + slot * MS
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=NOW_NS)
    assert core.pool_free()[0] == SMALL.pool_small - 2
    core.pump(NOW_NS + 100 * MS)
    assert core.pool_free()[0] == SMALL.pool_small - 2
    core.close_channel(1)
    core.pump(NOW_NS + 2_000 * MS)
    assert core.pool_free()[0] == SMALL.pool_small


def test_a_flooded_event_goes_with_the_alerts_but_on_its_own_port(subject: MakeCore) -> None:
    core = paced_core(subject, replace(MEGABIT, bandwidth_bytes_per_s=1_000, floods=True))
    core.commit([periodic(1, 1, routes=(to(1, 1),)), periodic(2, 1, floods=(Flood(0),))])
    for slot in range(3):
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)
    core.inject(datagram(PUBLISHER, event(2, NOW_NS)), now_ns=NOW_NS)
    core.pump(NOW_NS + 1_000 * MS)
    outputs = core.take_output(1)
    assert [variable_id for variable_id, _ in told(outputs)] == [1, 2, 1, 1]
    assert {port for port, _ in outputs} == {PORT_DATA}


@pytest.mark.parametrize(
    ("mtu_bytes", "options", "host", "wire_bytes"),
    [
        pytest.param(1_232, 0, None, 40 + 28, id="small"),
        pytest.param(64, 1, None, 64 + 28, id="as large as the MTU"),
        pytest.param(64, 2, None, 88 + 8 + 2 * 20, id="just larger"),
        pytest.param(67, 4, None, 136 + 8 + 2 * 20, id="two full fragments"),
        pytest.param(1_232, 255, None, 6_160 + 8 + 5 * 20, id="largest"),
        pytest.param(1_231, 255, None, 6_160 + 8 + 6 * 20, id="fragments of whole eights"),
        pytest.param(1_232, 255, "127.0.0.1", 6_160 + 8 + 5 * 20, id="largest by IPv4"),
        pytest.param(1_232, 0, "::1", 40 + 48, id="small by IPv6"),
        pytest.param(1_232, 255, "::1", 6_160 + 8 + 5 * 48, id="largest by IPv6"),
    ],
)
def test_an_event_larger_than_the_mtu_is_charged_per_fragment(
    subject: MakeCore, mtu_bytes: int, options: int, host: str | None, wire_bytes: int
) -> None:
    """Send at ten thousand bytes a second, where a byte takes a tenth of a millisecond."""
    assert law_bytes(40 + 24 * options, mtu_bytes, is_ipv6=host == "::1") == wire_bytes
    spec = ChannelSpec(1, mtu_bytes=mtu_bytes, bandwidth_bytes_per_s=10_000)
    with socket.socket(socket.AF_INET6 if host == "::1" else socket.AF_INET, UDP) as peer:
        if host is not None:
            peer.bind((host, 0))
            port = peer.getsockname()[1]
            spec = replace(spec, address=(host, port, port))
        core = paced_core(subject, spec)
        core.commit([periodic(1, 1, routes=(to(1, 3),))])
        for slot, size in ((0, options), (1, 0)):
            octets = event(1, NOW_NS + slot * MS, options=size)
            core.inject(datagram(PUBLISHER, octets), now_ns=NOW_NS)
        free_ns = NOW_NS - CREDIT_NS + wire_bytes * MS // 10
        queued = []
        for now_ns in (NOW_NS, free_ns - 1, free_ns):
            core.pump(now_ns)
            queued.append(core.channel_counters(1)["queued"])
        assert queued == [1, 1, 0]
        assert core.close_channel(1)["sent"] == 2


def test_an_idle_line_is_owed_no_more_than_two_milliseconds(subject: MakeCore) -> None:
    core = paced_core(subject, replace(MEGABIT, mtu_bytes=64))
    core.commit([periodic(1, 1, routes=(to(1, 3),))])
    for slot in range(30):
        octets = datagram(PUBLISHER, event(1, NOW_NS + slot * MS))
        core.inject(octets, now_ns=NOW_NS + 10_000 * MS)
    # Sent at once: as many as need 2 ms together, 68 bytes alone or 88 in pairs, and one more.
    assert len(core.take_output(1)) == 4
    sent_bytes = 0
    for step in range(1, 101):
        core.pump(NOW_NS + 10_000 * MS + step * MS // 10)
        sent_bytes += sum(len(octets) + WIRE_BYTES for _, octets in core.take_output(1))
    assert abs(sent_bytes - 10 * 125) <= 92
