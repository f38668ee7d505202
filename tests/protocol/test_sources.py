"""State of a core's sources: silence, losses by the counter, order. Two subjects."""

from __future__ import annotations

import random

import pytest

from gridstat.core.rows import PORT_URGENT, ChannelSpec
from tests.protocol.grids import (
    MS,
    NOW_NS,
    SMALL,
    MakeCore,
    Subject,
    datagram,
    event,
)

SOURCE = 5
OTHER = 6


def core_with_sources(make_core: MakeCore) -> Subject:
    core = make_core(SMALL)
    core.pump(NOW_NS)
    core.open_source(SOURCE)
    core.open_source(OTHER, is_publisher=True)
    return core


def hear(core: Subject, *counters: int, now_ns: int = NOW_NS, source: int = SOURCE) -> None:
    for counter in counters:
        core.inject(datagram(source, counter=counter, version=2), now_ns=now_ns)


def state(core: Subject, source: int = SOURCE) -> dict[str, int]:
    return core.source_states()[source]


def test_only_open_sources_have_a_state(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    hear(core, 1, source=77)
    assert set(core.source_states()) == {SOURCE, OTHER}
    core.close_source(OTHER)
    assert set(core.source_states()) == {SOURCE}


def test_silence_is_counted_from_the_last_datagram_of_either_kind(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    hear(core, 1, now_ns=NOW_NS + 10 * MS)
    core.pump(NOW_NS + 40 * MS)
    assert state(core)["heard_ns"] == NOW_NS + 10 * MS
    assert state(core)["silent_ns"] == 30 * MS
    core.inject(datagram(SOURCE, event(1, NOW_NS), counter=2), now_ns=NOW_NS + 50 * MS)
    assert state(core)["silent_ns"] == 0
    core.pump(NOW_NS + 51 * MS)
    assert state(core)["silent_ns"] == MS


def test_a_source_that_was_never_heard_is_silent_since_it_was_opened(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    core.pump(NOW_NS + 70 * MS)
    assert state(core)["heard_ns"] == 0
    assert state(core)["silent_ns"] == 70 * MS
    core.open_source(7)
    core.pump(NOW_NS + 90 * MS)
    assert core.source_states()[7]["silent_ns"] == 20 * MS


def test_before_the_core_began_to_listen_nobody_was_silent(subject: MakeCore) -> None:
    core = subject(SMALL)
    core.open_source(SOURCE)
    assert state(core)["silent_ns"] == 0
    core.pump(NOW_NS)
    assert state(core)["silent_ns"] == 0
    core.pump(NOW_NS + MS)
    assert state(core)["silent_ns"] == MS


def test_other_sources_do_not_break_a_silence(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    hear(core, 1)
    hear(core, *range(1, 40), now_ns=NOW_NS + 500 * MS, source=OTHER)
    assert state(core)["silent_ns"] == 500 * MS
    assert state(core, OTHER)["silent_ns"] == 0


def test_reopening_a_source_forgets_nothing_and_closing_it_does(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    hear(core, 1, 2, 5)
    before = state(core)
    core.open_source(SOURCE, is_publisher=True, back_channel=3)
    assert state(core) == before
    core.close_source(SOURCE)
    core.open_source(SOURCE)
    assert state(core)["datagrams"] == state(core)["lost"] == 0


@pytest.mark.parametrize(
    ("counters", "lost", "reordered"),
    [
        pytest.param((1, 2, 3, 4), 0, 0, id="in order"),
        pytest.param((40, 41, 42), 0, 0, id="from the middle on"),
        pytest.param((1, 2, 5, 6), 2, 0, id="two lost"),
        pytest.param((1, 3, 2, 4), 0, 1, id="one late"),
        pytest.param((1, 5, 4, 3, 2, 6), 0, 3, id="three late"),
        pytest.param((1, 2, 2, 2, 3), 0, 0, id="doubled by the network"),
        pytest.param((1, 4, 2, 2, 5), 1, 1, id="doubled, late, and one lost"),
        pytest.param((5, 4, 3), 0, 2, id="late at the beginning"),
        pytest.param((7, 7 + 2**24), 2**24 - 1, 0, id="the largest gap"),
        pytest.param((7, 8 + 2**24), 0, 0, id="too large for a gap"),
        pytest.param((2**64 - 2, 2**64 - 1, 0, 1), 0, 0, id="around the end of 64 bits"),
    ],
)
def test_lost_is_what_the_counter_leaves_out_less_what_comes_late(
    subject: MakeCore, counters: tuple[int, ...], lost: int, reordered: int
) -> None:
    core = core_with_sources(subject)
    hear(core, *counters)
    assert state(core)["lost"] == lost
    assert state(core)["reordered"] == reordered
    assert state(core)["datagrams"] == state(core)["probes"] == len(counters)


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((1, 2, 3), id="from 1"),
        pytest.param((4, 6, 7), id="its first ones and one more lost"),
    ],
)
@pytest.mark.parametrize("last", [1_500, 10_000, 5_000_000, 2**63])
def test_a_sender_that_starts_anew_has_lost_nothing_by_it(
    subject: MakeCore, last: int, after: tuple[int, ...]
) -> None:
    core = core_with_sources(subject)
    hear(core, last - 3, last)
    assert state(core)["lost"] == 2
    hear(core, *after)
    assert state(core)["lost"] == 2 + after[-1] - after[0] + 1 - len(after)
    assert state(core)["reordered"] == 0


def test_a_number_that_falls_back_too_far_on_its_own_port_is_a_new_start(
    subject: MakeCore,
) -> None:
    core = core_with_sources(subject)
    hear(core, 9_000, 9_001, 7_000, 7_001, 7_002)
    assert state(core)["lost"] == state(core)["reordered"] == 0
    assert state(core)["datagrams"] == 5


def test_a_jump_back_of_more_than_a_million_is_another_senders_count(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    hear(core, 3_000_000, 3_000_002, 1_999_000, 1_999_001)
    assert state(core)["lost"] == 1
    assert state(core)["reordered"] == 0


def test_both_ports_share_a_counter_and_overtaking_is_no_loss(subject: MakeCore) -> None:
    """The urgent port is read first: after a backlog its numbers run far ahead of the others."""
    core = core_with_sources(subject)
    hear(core, 1)
    urgent = range(1_500, 9_000, 3)
    for counter in urgent:
        raw = datagram(SOURCE, event(1, NOW_NS), counter=counter)
        core.inject(raw, port=PORT_URGENT, now_ns=NOW_NS)
    hear(core, *(counter for counter in range(2, 9_001) if counter not in urgent))
    assert state(core)["lost"] == 0
    assert state(core)["datagrams"] == 9_000


def test_a_malformed_datagram_is_nobodys(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    core.inject(datagram(SOURCE, counter=3, version=1), now_ns=NOW_NS)
    core.inject(datagram(SOURCE, event(1, NOW_NS), counter=3)[:-1], now_ns=NOW_NS)
    assert state(core)["datagrams"] == 0


def test_losses_are_told_exactly_under_loss_doubling_and_jitter(subject: MakeCore) -> None:
    core = core_with_sources(subject)
    rng = random.Random(7)
    arrivals: list[tuple[float, int]] = []
    lost = 0
    for counter in range(1, 20_001):
        if 100 < counter < 19_900 and rng.random() < 0.05:
            lost += 1
            continue
        copies = 2 if rng.random() < 0.02 else 1
        jitter = 200.0 if 100 < counter < 19_700 else 0.0
        arrivals += [(counter + jitter * rng.random(), counter) for _ in range(copies)]
    hear(core, *(counter for _, counter in sorted(arrivals)))
    assert state(core)["lost"] == lost
    assert state(core)["reordered"] > 1_000


def test_what_one_core_sends_on_both_ports_another_one_hears_without_loss(
    subject: MakeCore,
) -> None:
    core, peer = core_with_sources(subject), subject(SMALL)
    spec = ChannelSpec(1, mtu_bytes=100, datagram_version=2, probe_interval_ns=25 * MS)
    core.open_channel(spec)
    peer.open_source(1)
    for ms in range(100):
        core.pump(NOW_NS + ms * MS)
    for port, octets in core.take_output(1):
        peer.inject(octets, port=port, now_ns=NOW_NS)
    assert peer.source_states()[1]["probes"] == 4
    assert peer.source_states()[1]["lost"] == 0
