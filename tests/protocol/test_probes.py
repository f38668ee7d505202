"""Probes: datagrams of a header alone, sent at a steady rate and counted. Two subjects."""

from __future__ import annotations

import os
import socket
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from gridstat.core.reference import ReferenceCore
from gridstat.core.rows import ChannelSpec, Limits, Route, Term
from gridstat.model.errors import LayoutError
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    assert_reconciled,
    datagram,
    event,
    periodic,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

INTERVAL_NS = 25 * MS
PROBING = ChannelSpec(1, datagram_version=2, probe_interval_ns=INTERVAL_NS)


def core_with(make_core: MakeCore, spec: ChannelSpec) -> Subject:
    core = make_core(SMALL)
    set_up(core, spec)
    return core


def set_up(core: Subject, spec: ChannelSpec) -> None:
    core.open_source(PUBLISHER)
    core.open_channel(spec)
    core.commit([periodic(1, 1, routes=(Route(1, (Term(1),)),))])


def probe(channel_id: int, counter: int) -> bytes:
    return datagram(channel_id, counter=counter, version=2)


@pytest.mark.parametrize("bandwidth", [0, 10**6], ids=["plain", "paced"])
def test_a_probe_leaves_at_once_and_then_every_interval(subject: MakeCore, bandwidth: int) -> None:
    spec = ChannelSpec(
        1, datagram_version=2, probe_interval_ns=INTERVAL_NS, bandwidth_bytes_per_s=bandwidth
    )
    core = core_with(subject, spec)
    sent_at = []
    for ms in range(200):
        core.pump(NOW_NS + ms * MS)
        sent_at += [ms for _ in core.take_output(1)]
    assert sent_at == list(range(0, 200, 25))
    counters = core.channel_counters(1)
    assert counters["probes_sent"] == counters["datagrams_out"] == 8
    assert counters["bytes_out"] == 8 * 16
    assert counters["due"] == counters["sent"] == 0


IDLE_ONLY = replace(PROBING, probes_only_when_idle=True)


def sent_at(core: Subject, event_ms: Iterable[int], until_ms: int) -> dict[str, list[int]]:
    """Return the times of events and probes; the thread runs every millisecond, events first."""
    events = set(event_ms)
    found: dict[str, list[int]] = {"events": [], "probes": []}
    for ms in range(until_ms):
        now_ns = NOW_NS + ms * MS
        if ms in events:
            core.inject(datagram(PUBLISHER, event(1, now_ns)), now_ns=now_ns)
        core.pump(now_ns)
        for _, octets in core.take_output(1):
            found["events" if len(octets) > 16 else "probes"].append(ms)
    return found


@pytest.mark.parametrize("bandwidth", [0, 10**6], ids=["plain", "paced"])
def test_no_probe_is_sent_while_events_leave_once_an_interval(
    subject: MakeCore, bandwidth: int
) -> None:
    core = core_with(subject, replace(IDLE_ONLY, bandwidth_bytes_per_s=bandwidth))
    found = sent_at(core, range(0, 500, 25), 500)
    assert found == {"events": list(range(0, 500, 25)), "probes": []}
    assert core.channel_counters(1)["probes_sent"] == 0


@pytest.mark.parametrize("bandwidth", [0, 10**6], ids=["plain", "paced"])
def test_a_probe_is_sent_one_interval_after_the_last_event_and_then_every_interval(
    subject: MakeCore, bandwidth: int
) -> None:
    core = core_with(subject, replace(IDLE_ONLY, bandwidth_bytes_per_s=bandwidth))
    found = sent_at(core, (10, 20, 33, 41, 130), 200)
    # The first look comes before any event; 41 + 25, then the rhythm, until 130 puts it off.
    assert found["probes"] == [0, 66, 91, 116, 155, 180]


def test_a_stream_that_is_slower_than_the_interval_has_probes_between_its_events(
    subject: MakeCore,
) -> None:
    core = core_with(subject, IDLE_ONLY)
    found = sent_at(core, range(0, 200, 40), 200)
    assert found["probes"] == [25, 65, 105, 145, 185]


def test_an_idle_channel_is_probed_in_the_same_rhythm(subject: MakeCore) -> None:
    core = core_with(subject, IDLE_ONLY)
    assert sent_at(core, (), 200)["probes"] == list(range(0, 200, 25))


def test_a_channel_to_an_older_receiver_is_probed_beside_its_events(subject: MakeCore) -> None:
    """Probe an older receiver, which counts only probes to judge that a channel has returned."""
    core = core_with(subject, PROBING)
    assert sent_at(core, range(200), 200)["probes"] == list(range(0, 200, 25))


def test_events_that_wait_for_their_line_put_no_probe_off(subject: MakeCore) -> None:
    """A line of 100 bytes/s: the first event of 68 leaves, the next ones wait for seconds."""
    core = core_with(subject, replace(IDLE_ONLY, bandwidth_bytes_per_s=100))
    found = sent_at(core, range(5), 80)
    assert found["events"] == [0]
    assert found["probes"] == [25, 50, 75]


@contextmanager
def without_alerts(make_core: MakeCore, spec: ChannelSpec) -> Iterator[Subject]:
    """A channel on which alerts, of variable 2, cannot be sent; all else can."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as data,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as urgent,
    ):
        for peer in (data, urgent):
            peer.bind(("127.0.0.1", 0))
        data_port, urgent_port = (peer.getsockname()[1] for peer in (data, urgent))
        core = make_core(SMALL)
        if isinstance(core, ReferenceCore):  # It has one socket for both, which refuses port 0.
            set_up(core, replace(spec, address=("127.0.0.1", data_port, 0)))
        else:
            set_up(core, replace(spec, address=("127.0.0.1", data_port, urgent_port)))
            shut_socket_to(urgent.getsockname())
        core.commit([periodic(2, 1, is_urgent=True, routes=(Route(1, (Term(1),)),))])
        try:
            yield core
        finally:
            core.commit(removals=[1, 2])
            core.close_channel(1)


def shut_socket_to(address: tuple[str, int]) -> None:
    """Shut for writing the one socket of this process that is connected to an address."""
    assert sum(shut_if_to(int(name), address) for name in os.listdir("/proc/self/fd")) == 1


def shut_if_to(descriptor: int, address: tuple[str, int]) -> bool:
    """Shut a socket for writing if it is connected to the address; return whether it is."""
    with suppress(OSError):  # The file is closed by now, or is a socket without a peer.
        copy = os.dup(descriptor)
        try:
            opened = socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
            return False
        with opened:
            if opened.getpeername() == address:
                opened.shutdown(socket.SHUT_WR)
                return True
    return False


@pytest.mark.parametrize("bandwidth", [0, 10**6], ids=["plain", "paced"])
@pytest.mark.parametrize("options", [0, 255], ids=["small", "larger than the MTU"])
def test_events_that_could_not_be_sent_put_no_probe_off(
    subject: MakeCore, bandwidth: int, options: int
) -> None:
    spec = replace(IDLE_ONLY, bandwidth_bytes_per_s=bandwidth)
    with without_alerts(subject, spec) as core:
        for ms in range(200):
            now_ns = NOW_NS + ms * MS
            octets = event(2, now_ns, options=options)
            core.inject(datagram(PUBLISHER, octets), now_ns=now_ns)
            core.pump(now_ns)
        counters = core.channel_counters(1)
    assert counters["sent"] == 0
    assert counters["send_failed"] > 0
    assert counters["probes_sent"] == 8


def test_a_channel_without_alerts_leaves_the_sockets_of_others_alone(subject: MakeCore) -> None:
    """Another thread may open one while the channel is made."""
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as to_peer,
        ExitStack() as opened,
    ):
        peer.bind(("127.0.0.1", 0))
        to_peer.connect(peer.getsockname())

        def make_both(limits: Limits, /, *, versions_max: int = 3) -> Subject:
            for _ in range(4):
                opened.enter_context(to_peer.dup())
            return subject(limits, versions_max=versions_max)

        with without_alerts(make_both, IDLE_ONLY):
            assert to_peer.send(b"x") == 1


def test_a_probe_that_a_failed_event_has_let_go_is_followed_by_no_other_beside_data(
    subject: MakeCore,
) -> None:
    probes = []
    with without_alerts(subject, IDLE_ONLY) as core:
        for ms in range(200):
            now_ns = NOW_NS + ms * MS
            number = 2 if ms == 60 else 1
            core.inject(datagram(PUBLISHER, event(number, now_ns)), now_ns=now_ns)
            core.pump(now_ns)
            probes.append(core.channel_counters(1)["probes_sent"])
    assert (probes[59], probes[-1]) == (0, 1)


def test_a_late_timer_does_not_shift_the_rhythm_and_makes_nothing_up(subject: MakeCore) -> None:
    core = core_with(subject, PROBING)
    sent_at = []
    for ms in (0, 24, 27, 49, 51, 75, 190, 191, 214, 215):
        core.pump(NOW_NS + ms * MS)
        sent_at += [ms for _ in core.take_output(1)]
    assert sent_at == [0, 27, 51, 75, 190, 215]


def test_a_probe_is_a_header_of_version_2_on_the_data_port(subject: MakeCore) -> None:
    core = core_with(subject, PROBING)
    core.pump(NOW_NS)
    assert core.take_output(1) == [(0, probe(1, 1))]


def test_probes_and_events_share_the_counter_of_their_channel(subject: MakeCore) -> None:
    core = core_with(subject, PROBING)
    core.pump(NOW_NS)
    core.inject(datagram(PUBLISHER, event(1, NOW_NS)), now_ns=NOW_NS)
    core.pump(NOW_NS + INTERVAL_NS)
    core.close_channel(1)
    core.open_channel(PROBING)
    core.pump(NOW_NS + INTERVAL_NS)
    assert core.take_output(1) == [(0, probe(1, 4))]


@pytest.mark.parametrize("version", [1, 2])
def test_a_channel_without_an_interval_sends_no_probe(subject: MakeCore, version: int) -> None:
    core = core_with(subject, ChannelSpec(1, datagram_version=version))
    for ms in range(0, 10_000, 100):
        core.pump(NOW_NS + ms * MS)
    assert core.take_output(1) == []


def test_a_probe_takes_its_share_of_a_paced_line(subject: MakeCore) -> None:
    """16 + 28 bytes at 44,000 bytes a second: the line is busy for a millisecond after a probe."""
    spec = ChannelSpec(
        1, datagram_version=2, probe_interval_ns=INTERVAL_NS, bandwidth_bytes_per_s=44_000
    )
    core = core_with(subject, spec)
    core.pump(NOW_NS)
    core.take_output(1)
    for slot in range(4):  # Each takes 68 bytes, alone; the first ones use up the credit.
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)
    with_probe = len(core.take_output(1))
    quiet = core_with(subject, ChannelSpec(1, bandwidth_bytes_per_s=44_000))
    for slot in range(4):
        quiet.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)
    assert with_probe < len(quiet.take_output(1))


def test_a_probe_overtakes_events_that_wait_for_their_line(subject: MakeCore) -> None:
    spec = ChannelSpec(
        1, datagram_version=2, probe_interval_ns=INTERVAL_NS, bandwidth_bytes_per_s=100
    )
    core = core_with(subject, spec)
    for slot in range(5):
        core.inject(datagram(PUBLISHER, event(1, NOW_NS + slot * MS)), now_ns=NOW_NS)
    core.take_output(1)
    assert core.channel_counters(1)["queued"] == 4
    core.pump(NOW_NS + MS)
    assert [len(octets) for _, octets in core.take_output(1)] == [16]
    assert core.channel_counters(1)["queued"] == 4


def test_a_probe_that_is_heard_is_no_event(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1))
    for number in range(1, 4):
        core.inject(probe(PUBLISHER, number), now_ns=NOW_NS)
    core.inject(probe(99, 1), now_ns=NOW_NS)  # Nobody opened that source.
    assert core.source_states()[PUBLISHER]["probes"] == 3
    counters = core.counters()
    assert counters["datagrams_in"] == 4
    assert counters["bytes_in"] == 64
    assert counters["in"] == 0
    assert core.take_output(1) == []
    assert_reconciled(core, [1])


def test_a_header_alone_of_version_1_stays_malformed(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1))
    core.inject(datagram(PUBLISHER, version=1), now_ns=NOW_NS)
    assert core.counters()["malformed_length"] == 1
    assert core.source_states()[PUBLISHER]["datagrams"] == 0


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        pytest.param((0, 0), "datagram version 0", id="version 0"),
        pytest.param((4, 0), "datagram version 4", id="version 4"),
        pytest.param((1, 25 * MS), "version 1", id="probes in version 1"),
        pytest.param((2, MS - 1), "probe_interval_ns", id="too often"),
        pytest.param((2, 60_001 * MS), "probe_interval_ns", id="too seldom"),
        pytest.param((2, -1), "probe_interval_ns", id="before now"),
    ],
)
def test_a_channel_that_cannot_probe_so_is_refused(
    subject: MakeCore, wrong: tuple[int, int], complaint: str
) -> None:
    version, interval_ns = wrong
    core = subject(SMALL)
    with pytest.raises(LayoutError, match=complaint):
        core.open_channel(ChannelSpec(1, datagram_version=version, probe_interval_ns=interval_ns))
