"""The window of seen slots: nothing good is lost to it, and nothing forged silences it."""

from __future__ import annotations

import random

import pytest

from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.model.rate_law import Period
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    datagram,
    event,
    periodic,
    told,
)

PERIOD_NS = 10 * MS
SECOND_NS = 1_000 * MS
ROUTES = (Route(1, (Term(1),)),)


class Stream:
    """Slots of one variable offered to a core, and which of them came out."""

    def __init__(self, make_core: MakeCore, *, is_publisher: bool = False) -> None:
        self.core: Subject = make_core(SMALL)
        self.core.open_source(PUBLISHER, is_publisher=is_publisher)
        self.core.open_channel(ChannelSpec(1))
        row = periodic(1, 10, is_stamp_exempt=True, routes=ROUTES)
        self.core.commit([row, aperiodic(2, routes=ROUTES)])
        self.now_ns = NOW_NS

    def offer(self, *slots: int, sequence: int = 0) -> list[int]:
        """The slots that pass, of these, counted from the start."""
        for slot in slots:
            octets = datagram(PUBLISHER, event(1, NOW_NS + slot * PERIOD_NS, sequence=sequence))
            self.core.inject(octets, now_ns=self.now_ns)
        return [(at - NOW_NS) // PERIOD_NS for _, at in told(self.core.take_output(1))]

    def count(self, counter: str) -> int:
        return self.core.counters()[counter]


@pytest.mark.parametrize("is_publisher", [False, True])
def test_after_an_outage_of_a_million_slots_no_good_event_is_lost(
    subject: MakeCore, *, is_publisher: bool
) -> None:
    stream = Stream(subject, is_publisher=is_publisher)
    assert stream.offer(0, 1, 2) == [0, 1, 2]
    stream.now_ns += 1_000_000 * PERIOD_NS
    resumed = range(1_000_000, 1_000_100)
    assert stream.offer(*resumed) == list(resumed)
    assert stream.count("policed_jump") == 0


def test_events_further_apart_than_the_window_all_pass(subject: MakeCore) -> None:
    """A subscription to every 600th slot: a router on its way sees no others."""
    stream = Stream(subject)
    for slot in range(0, 60_000, 600):
        assert stream.offer(slot, slot) == [slot]
        stream.now_ns += 600 * PERIOD_NS
    assert stream.count("policed_jump") == 0
    assert stream.count("duplicate") == 100


@pytest.mark.parametrize("now_ns", [1, 2, 3])
def test_a_window_works_from_the_first_nanosecond_of_a_clock(
    subject: MakeCore, now_ns: int
) -> None:
    """A datagram that lay in a queue while the wall clock was set may count as so early."""
    stream = Stream(subject)
    stream.now_ns = now_ns
    assert stream.offer(0, 0, 1, 1) == [0, 1]
    assert stream.offer(10_000, 2, 0) == [2]
    assert stream.offer(10_000, 10_001, 10_001) == [10_001]
    assert (stream.count("duplicate"), stream.count("policed_jump")) == (4, 2)


def test_a_forged_event_does_not_silence_a_slow_subscription(subject: MakeCore) -> None:
    stream = Stream(subject)
    stream.offer(0)
    stream.now_ns += 6 * SECOND_NS
    assert stream.offer(10**9) == [10**9]
    passed = []
    for slot in range(600, 6_000, 600):
        stream.now_ns += 6 * SECOND_NS
        passed += stream.offer(slot)
    assert passed == list(range(1_200, 6_000, 600))


@pytest.mark.parametrize("is_publisher", [False, True])
def test_after_a_restart_with_its_clock_set_back_at_most_two_good_events_are_lost(
    subject: MakeCore, *, is_publisher: bool
) -> None:
    stream = Stream(subject, is_publisher=is_publisher)
    stream.offer(*range(300))
    stream.now_ns += 2 * SECOND_NS
    restarted = list(range(-5_000, -4_900))
    passed = stream.offer(*restarted)
    assert passed == restarted[-len(passed) :]
    assert len(restarted) - len(passed) <= 2


@pytest.mark.parametrize("is_publisher", [False, True])
def test_a_restart_that_begins_its_sequence_anew_loses_nothing(
    subject: MakeCore, *, is_publisher: bool
) -> None:
    stream = Stream(subject, is_publisher=is_publisher)
    for slot in range(100):
        assert stream.offer(slot, sequence=60_000 + slot) == [slot]
    for slot in range(130, 230):
        assert stream.offer(slot, sequence=slot - 130) == [slot]


def test_a_clock_set_back_by_less_than_the_window_while_quiet_loses_only_used_slots(
    subject: MakeCore,
) -> None:
    stream = Stream(subject)
    stream.offer(*range(0, 200, 2))
    stream.now_ns += 2 * SECOND_NS
    assert stream.offer(*range(150, 260)) == [*range(151, 199, 2), *range(199, 260)]


@pytest.mark.parametrize("seed", range(3))
def test_jitter_and_reordering_within_the_window_lose_nothing_and_repeat_nothing(
    subject: MakeCore, seed: int
) -> None:
    stream = Stream(subject)
    rng = random.Random(seed)
    copies = [slot for slot in range(3_000) for _ in range(rng.randrange(1, 4))]
    passed = stream.offer(*sorted(copies, key=lambda slot: slot + rng.uniform(0, 255)))
    assert sorted(passed) == list(range(3_000))
    assert stream.count("duplicate") == len(copies) - 3_000


def test_slots_up_to_255_behind_the_newest_are_still_taken_once(subject: MakeCore) -> None:
    stream = Stream(subject)
    assert stream.offer(0, 255, 0, 1, 1, 254, 255) == [0, 255, 1, 254]
    assert stream.count("duplicate") == 3
    assert stream.offer(256, 0, 1, 2) == [256, 2]


@pytest.mark.parametrize("forged", [256, 1_000, 10**9, -256, -1_000, -(10**8)])
def test_one_forged_event_far_away_does_not_silence_the_variable(
    subject: MakeCore, forged: int
) -> None:
    stream = Stream(subject)
    assert stream.offer(0, 1, 2) == [0, 1, 2]
    assert stream.offer(2 + forged) == []
    assert stream.offer(3, 4, 5) == [3, 4, 5]
    assert stream.offer(5 + forged, 5 + forged) == []  # The same slot twice is still one event.
    assert stream.offer(6, 7) == [6, 7]


def test_two_events_far_apart_from_each_other_do_not_move_the_window(subject: MakeCore) -> None:
    stream = Stream(subject)
    assert stream.offer(0, 10_000, 20_000, 30_000, 1) == [0, 1]
    assert stream.count("policed_jump") == 3
    assert stream.offer(10_000, 10_255) == [10_255]


def test_a_candidate_is_forgotten_when_the_stream_goes_on(subject: MakeCore) -> None:
    stream = Stream(subject)
    assert stream.offer(0, 10_000, 1, 10_001, 2) == [0, 1, 2]
    assert stream.count("policed_jump") == 2
    assert stream.offer(10_000, 10_001) == [10_001]


def test_after_a_silence_what_is_ahead_is_taken_and_what_is_behind_is_not(
    subject: MakeCore,
) -> None:
    stream = Stream(subject)
    stream.offer(0)
    stream.now_ns += SECOND_NS
    assert stream.offer(-256, 256, -257, 257) == [256, 257]
    assert (stream.count("policed_jump"), stream.count("too_old")) == (1, 1)


def test_old_copies_have_their_own_counter_while_the_stream_is_alive(subject: MakeCore) -> None:
    stream = Stream(subject)
    stream.offer(1_000)
    stream.now_ns += SECOND_NS - 2
    assert stream.offer(0, 1, 2, 3) == []
    assert (stream.count("too_old"), stream.count("policed_jump")) == (4, 0)
    stream.now_ns += 2
    assert stream.offer(0, 1, 2, 3) == [1, 2, 3]
    assert (stream.count("too_old"), stream.count("policed_jump")) == (4, 1)


def test_a_second_copy_from_another_channel_is_a_duplicate_and_no_fault_of_the_publisher(
    subject: MakeCore,
) -> None:
    stream = Stream(subject, is_publisher=True)
    neighbour = datagram(50, event(1, NOW_NS))
    stream.core.open_source(50)
    stream.core.inject(neighbour, now_ns=NOW_NS)
    stream.offer(0)
    stream.core.inject(neighbour, now_ns=NOW_NS)
    assert (stream.count("duplicate"), stream.count("policed")) == (2, 0)
    stream.offer(0)
    assert (stream.count("duplicate"), stream.count("policed_slot")) == (2, 1)


def test_slots_before_the_phase_are_negative_and_filtered_by_the_same_law(
    subject: MakeCore,
) -> None:
    core = subject(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    routes = (Route(1, (Term(3),)),)
    core.commit([periodic(1, 10, phase_ns=NOW_NS, routes=routes)])
    for slot in range(-10, 10):
        octets = datagram(PUBLISHER, event(1, NOW_NS + slot * PERIOD_NS))
        core.inject(octets, now_ns=NOW_NS)
    passed = [(at - NOW_NS) // PERIOD_NS for _, at in told(core.take_output(1))]
    assert passed == [-9, -6, -3, 0, 3, 6, 9]


def offer_aperiodic(stream: Stream, created_ns: int, sequence: int) -> bool:
    octets = datagram(PUBLISHER, event(2, created_ns, sequence=sequence))
    stream.core.inject(octets, now_ns=stream.now_ns)
    return bool(stream.core.take_output(1))


def test_aperiodic_events_are_known_by_stamp_and_sequence_exactly(subject: MakeCore) -> None:
    stream = Stream(subject)
    assert offer_aperiodic(stream, NOW_NS, 1)
    assert not offer_aperiodic(stream, NOW_NS, 1)
    assert offer_aperiodic(stream, NOW_NS, 2)
    assert offer_aperiodic(stream, NOW_NS - 10**15, 1)
    assert stream.count("duplicate") == 1


def test_the_ring_remembers_128_events_and_each_until_it_expires(subject: MakeCore) -> None:
    stream = Stream(subject)
    assert all(offer_aperiodic(stream, NOW_NS + i, 0) for i in range(128))
    assert not any(offer_aperiodic(stream, NOW_NS + i, 0) for i in range(128))
    assert offer_aperiodic(stream, NOW_NS + 128, 0)
    assert offer_aperiodic(stream, NOW_NS, 0)  # The oldest has made room, and now the next goes.
    assert offer_aperiodic(stream, NOW_NS + 1, 0)
    stream.now_ns += SMALL.ring_expiry_ns
    assert not offer_aperiodic(stream, NOW_NS + 3, 0)
    stream.now_ns += 2
    assert offer_aperiodic(stream, NOW_NS + 3, 0)


def test_slots_at_both_bounds_of_64_bits_do_not_wrap_into_neighbours(subject: MakeCore) -> None:
    """The newest slot 2^63 - 1 and the oldest -2^63 differ by 1 only in wrapping arithmetic."""
    core = subject(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    fast = Row(1, Period(1, 2**32 - 1), phase_ns=2**63, routes=ROUTES)
    core.commit([fast])
    for created_ns in (2**64 - 1, 0):
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=NOW_NS)
    assert core.counters()["dispatched"] == 1
    assert core.counters()["too_old"] == 1
