"""Counters of a receiver for one variable: by its contract, and by the ways of its copies."""

from __future__ import annotations

import random
import socket
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint import Receiver
from gridstat.model.errors import LayoutError, LimitReached, Misuse, UnknownName
from gridstat.model.rate_law import Period
from tests.protocol.ends import MS, NOW_NS, eventually, wait_for
from tests.protocol.grids import EVENT, datagram, event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.core.samples import VariableCounters

CENTISECOND = Period(1, 100)
FIRST_SLOT = NOW_NS // (10 * MS)
EAST, WEST = 7, 8
HOUR_NS = 3_600_000 * MS


class Stage:
    """A running receiver, and a socket that sends for its channels."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._sent = 0

    def tell(self, *events: bytes, channel_id: int = EAST) -> None:
        """Send events, each alone, and return when they have been counted."""
        for one in events:
            self._sent += 1
            raw = datagram(channel_id, one, counter=self._sent)
            self.socket.sendto(raw, ("127.0.0.1", self.receiver.ports[0]))
            wait_for(self.receiver, **{"in": self._sent})

    def tell_slots(self, *slots: int, channel_id: int = EAST, variable_id: int = 1) -> None:
        stamps = [NOW_NS + slot * 10 * MS for slot in slots]
        self.tell(*(event(variable_id, stamp) for stamp in stamps), channel_id=channel_id)

    def counted(self, variable_id: int = 1) -> VariableCounters:
        return self.receiver.variable_counters(variable_id)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with Receiver(variables_max=64, ring_events=4_096) as receiver:
        receiver.expect(1, CENTISECOND)
        receiver.start()
        made = Stage(receiver)
        yield made
        made.socket.close()


def test_a_variable_that_was_not_heard_has_counted_nothing(stage: Stage) -> None:
    assert stage.counted() == {
        "delivered": 0,
        "duplicate": 0,
        "late": 0,
        "unknown": 0,
        "missing": 0,
        "extra": 0,
        "ring_full": 0,
        "first_slot": 0,
        "last_slot": 0,
        "copies": [],
        "passed": 0,
        "came": [0, 0, 0, 0],
        "first": [0, 0, 0, 0],
        "late_by": [0, 0, 0, 0],
        "too_old": 0,
        "too_old_by": [0, 0, 0, 0],
    }


@pytest.mark.parametrize(
    ("slots", "missing", "span"),
    [
        pytest.param((0, 1, 2, 3), 0, (0, 3), id="all of them"),
        pytest.param((0, 1, 4, 5), 2, (0, 5), id="two are missing"),
        pytest.param((0, 4, 2, 5), 2, (0, 5), id="one comes after all"),
        pytest.param((0, 4, 3, 2, 1, 5), 0, (0, 5), id="three come after all"),
        pytest.param((3, 1, 4), 1, (1, 4), id="earlier than the first"),
        pytest.param((0, 1, -500, -499, -498), 0, (0, 1), id="far behind a stream that is alive"),
    ],
)
def test_every_slot_of_the_span_was_delivered_or_is_missing(
    stage: Stage, slots: tuple[int, ...], missing: int, span: tuple[int, int]
) -> None:
    stage.tell_slots(*slots)
    counted = stage.counted()
    assert counted["missing"] == missing
    first, last = (FIRST_SLOT + slot for slot in span)
    assert (counted["first_slot"], counted["last_slot"]) == (first, last)
    assert counted["delivered"] + missing == last - first + 1


def test_a_jump_beyond_the_window_begins_another_span_and_misses_nothing(stage: Stage) -> None:
    """A clock that is set forward an hour says nothing of an hour without events."""
    stage.tell_slots(0, 1, 360_000, 360_001, 360_002)
    counted = stage.counted()
    assert (counted["delivered"], counted["missing"]) == (4, 0)
    assert counted["first_slot"] == FIRST_SLOT + 360_001


def test_only_due_slots_count_and_others_are_extra(stage: Stage) -> None:
    stage.receiver.expect(1, CENTISECOND, every=4)
    start = -FIRST_SLOT % 4
    stage.tell_slots(*(start + slot for slot in (0, 1, 4, 7, 12, 16)))
    counted = stage.counted()
    assert counted["delivered"] == 4
    assert counted["extra"] == 2
    assert counted["missing"] == 1
    assert (counted["last_slot"] - counted["first_slot"]) // 4 + 1 == 5
    assert len(stage.receiver.read()) == 6


def test_lateness_is_judged_on_first_copies_with_a_good_stamp(stage: Stage) -> None:
    stage.receiver.expect(2, None, deadline_ns=HOUR_NS)
    stamps = (NOW_NS, NOW_NS + 1, 2**63)  # Long ago, twice; and not yet.
    stage.tell(*(event(2, stamp) for stamp in stamps))
    stage.tell(event(2, NOW_NS))  # A second copy.
    bad = EVENT.pack(NOW_NS + 2, 2, 0, 0b10, 0, 0)
    degraded = EVENT.pack(NOW_NS + 3, 2, 0, 0b01, 0, 0)
    stage.tell(bad, degraded)
    counted = stage.counted(2)
    assert (counted["delivered"], counted["duplicate"]) == (5, 1)
    assert (counted["late"], counted["unknown"]) == (2, 2)
    assert (counted["first_slot"], counted["last_slot"], counted["missing"]) == (0, 0, 0)


def test_without_a_deadline_none_is_late(stage: Stage) -> None:
    stage.tell_slots(0, 1, 2)
    assert stage.counted()["late"] == 0


def test_copies_are_counted_by_the_channel_they_came_on(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.receiver.open_source(WEST)
    stage.tell_slots(0, 1, 2, channel_id=EAST)
    stage.tell_slots(1, 2, 3, channel_id=WEST)
    stage.tell_slots(4, channel_id=99)
    counted = stage.counted()
    assert counted["copies"] == [3, 3]
    assert (counted["delivered"], counted["duplicate"], counted["missing"]) == (5, 2, 0)


def test_a_channel_that_takes_the_place_of_another_goes_on_in_it(stage: Stage) -> None:
    for channel_id in (EAST, WEST):
        stage.receiver.open_source(channel_id)
    stage.tell_slots(0, 1, channel_id=EAST)
    stage.receiver.close_source(EAST)
    stage.tell_slots(2, channel_id=EAST)
    stage.receiver.open_source(77)
    stage.tell_slots(3, channel_id=77)
    assert stage.counted()["copies"] == [3, 0]
    assert list(stage.receiver.source_states()) == [77, WEST]


def test_copies_of_more_than_eight_channels_are_not_told_apart(stage: Stage) -> None:
    for channel_id in range(1, 12):
        stage.receiver.open_source(channel_id)
    for channel_id in range(1, 12):
        stage.tell_slots(channel_id, channel_id=channel_id)
    assert stage.counted()["copies"] == [1] * 8
    assert stage.counted()["delivered"] == 11


def test_an_event_that_finds_the_ring_full_came_all_the_same() -> None:
    with Receiver(variables_max=4, ring_events=4) as receiver:
        receiver.expect(1, CENTISECOND)
        receiver.start()
        stage = Stage(receiver)
        stage.tell_slots(*range(6))
        counted = stage.counted()
        stage.socket.close()
    assert (counted["delivered"], counted["ring_full"], counted["missing"]) == (4, 2, 0)


def test_other_terms_are_counted_from_nothing_and_no_copy_passes_twice(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.tell_slots(0, 1, 2)
    stage.receiver.expect(1, CENTISECOND, every=2, deadline_ns=MS)
    assert stage.counted()["delivered"] == 0
    assert stage.counted()["copies"] == [0]
    start = FIRST_SLOT % 2
    stage.tell_slots(1, 2, start + 4)
    counted = stage.counted()
    assert (counted["delivered"], counted["duplicate"], counted["late"]) == (1, 2, 1)
    assert counted["copies"] == [3]
    assert len(stage.receiver.read()) == 4


def test_the_same_terms_again_change_nothing(stage: Stage) -> None:
    stage.tell_slots(0, 1)
    stage.receiver.expect(1, CENTISECOND)
    stage.tell_slots(1, 2)
    assert stage.counted()["delivered"] == 3
    assert stage.counted()["duplicate"] == 1


def test_another_period_forgets_what_came_before(stage: Stage) -> None:
    stage.tell_slots(0, 1)
    stage.receiver.expect(1, Period(1, 50))
    assert stage.receiver.newest(1) is None
    stage.tell_slots(0)
    assert stage.counted()["delivered"] == 1
    assert len(stage.receiver.read()) == 3


def test_a_clock_that_is_set_back_begins_another_span(stage: Stage) -> None:
    """Send events before the window: after a second without any, two in a row move it back."""
    stage.tell_slots(0, 1)

    def complaint() -> str | None:
        stage.tell_slots(-5_000)
        stage.tell_slots(-4_999)
        return None if stage.counted()["delivered"] > 2 else "the window has not moved"

    eventually(complaint)
    counted = stage.counted()
    assert counted["last_slot"] == FIRST_SLOT - 4_999
    assert counted["last_slot"] - counted["first_slot"] + 1 == counted["delivered"] - 2
    assert counted["missing"] == 0


# Forgetting.


def test_events_of_a_forgotten_variable_are_unknown(stage: Stage) -> None:
    stage.tell_slots(0)
    stage.receiver.forget(1)
    stage.tell_slots(1)
    counters = stage.receiver.counters()
    assert (counters["delivered"], counters["unknown"]) == (1, 1)
    assert stage.receiver.newest(1) is None
    with pytest.raises(UnknownName, match="variable 1"):
        stage.counted()
    with pytest.raises(UnknownName, match="variable 1"):
        stage.receiver.forget(1)


def test_a_variable_expected_again_begins_anew(stage: Stage) -> None:
    stage.tell_slots(0, 1)
    stage.receiver.forget(1)
    stage.receiver.expect(1, CENTISECOND)
    stage.tell_slots(1)
    assert stage.counted()["delivered"] == 1
    assert len(stage.receiver.read()) == 3


def test_a_law_that_variables_share_stays_until_the_last_of_them_is_forgotten(stage: Stage) -> None:
    for variable_id in (2, 3):
        stage.receiver.expect(variable_id, CENTISECOND)
    for variable_id in (2, 3):
        stage.receiver.forget(variable_id)
        stage.receiver.expect(10 + variable_id, Period(variable_id, 1))
    stage.tell_slots(0, 1, 2)
    counted = stage.counted()
    assert (counted["delivered"], counted["duplicate"], counted["missing"]) == (3, 0, 0)


def test_a_forgotten_place_serves_another_variable(stage: Stage) -> None:
    receiver = stage.receiver
    for variable_id in range(2, 65):
        receiver.expect(variable_id, None)
    with pytest.raises(LimitReached, match="too many variables"):
        receiver.expect(65, None)
    receiver.forget(20)
    receiver.expect(65, CENTISECOND)
    with pytest.raises(LimitReached):
        receiver.expect(20, None)
    stage.tell_slots(0, variable_id=65)
    stage.tell_slots(0, variable_id=20)
    assert stage.counted(65)["delivered"] == 1
    assert receiver.counters()["unknown"] == 1


def test_a_full_receiver_can_still_change_the_period_of_a_variable(stage: Stage) -> None:
    for variable_id in range(2, 65):
        stage.receiver.expect(variable_id, CENTISECOND)
    for per_seconds in (50, 60, 120):
        stage.receiver.expect(30, Period(1, per_seconds))
        stage.receiver.expect(31, None if per_seconds == 60 else CENTISECOND)
    stage.tell_slots(0, 7, variable_id=30)
    assert stage.counted(30)["delivered"] == 2


def test_identifiers_may_come_and_go_without_end(stage: Stage) -> None:
    """Far more blocks of identifiers and sorts of terms than places, while events come."""
    rng = random.Random(9)
    live: dict[int, int] = {}
    for turn in range(3_000):
        variable_id = rng.randrange(2, 2**32)
        if len(live) == 63:
            gone = rng.choice(list(live))
            del live[gone]
            stage.receiver.forget(gone)
        period = rng.choice((None, Period(1, turn + 1)))
        stage.receiver.expect(variable_id, period, every=turn + 1, deadline_ns=turn)
        live[variable_id] = 0
        if turn % 50 == 0:
            stage.tell(event(variable_id, NOW_NS), event(variable_id, NOW_NS))
            counted = stage.counted(variable_id)
            assert counted["delivered"] + counted["extra"] == counted["duplicate"] == 1
            live[variable_id] = 1
    for variable_id, sent in live.items():
        counted = stage.counted(variable_id)
        assert counted["delivered"] + counted["extra"] == sent


# What is refused.


def test_a_receiver_that_only_sums_up_has_no_ledger() -> None:
    with Receiver(keep="count", variables_max=4) as receiver:
        receiver.expect(1, CENTISECOND, every=2, deadline_ns=5)
        with pytest.raises(Misuse, match="nothing but sums"):
            receiver.variable_counters(1)


@pytest.mark.parametrize(
    ("every", "deadline_ns"),
    [
        pytest.param(0, 0, id="every none"),
        pytest.param(2**32, 0, id="every too many"),
        pytest.param(1, -1, id="a deadline before the event"),
        pytest.param(1, 2**64, id="a deadline beyond 64 bits"),
    ],
)
def test_terms_out_of_range_are_refused(stage: Stage, every: int, deadline_ns: int) -> None:
    with pytest.raises(LayoutError):
        stage.receiver.expect(1, CENTISECOND, every=every, deadline_ns=deadline_ns)


def test_a_source_has_missed_the_due_slots_that_only_the_other_brought(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.receiver.open_source(WEST)
    for slot in range(120):
        stage.tell_slots(slot)
        if slot % 10 or slot >= 100:
            stage.tell_slots(slot, channel_id=WEST)
    counted = stage.counted()
    judged = 120 - 102  # A second's worth of the newest, and two, are left open.
    assert (counted["passed"], counted["came"][:2]) == (judged, [judged, judged - 2])
    stage.tell_slots(*range(120, 400), channel_id=WEST)
    counted = stage.counted()
    judged = 400 - 102
    assert counted["passed"] - counted["came"][1] == 10
    assert counted["passed"] - counted["came"][0] == judged - 120
    assert counted["first"][:2] == [120, 280]


def test_of_one_source_alone_nothing_is_missed_and_nothing_is_counted(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.tell_slots(*range(200))
    assert (stage.counted()["passed"], stage.counted()["came"]) == (0, [0, 0, 0, 0])


def test_late_copies_are_counted_by_the_source_that_brought_them(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.receiver.open_source(WEST)
    stage.receiver.expect(1, CENTISECOND, deadline_ns=HOUR_NS)  # All stamps are older than that.
    stage.tell_slots(0, 1, 2, 3)
    stage.tell_slots(1, 2, channel_id=WEST)
    assert stage.counted()["late_by"][:2] == [4, 2]
    assert stage.counted()["late"] == 4


def test_a_slot_that_one_source_brings_twice_is_late_once(stage: Stage) -> None:
    stage.receiver.open_source(EAST)
    stage.receiver.open_source(WEST)
    stage.receiver.expect(1, CENTISECOND, deadline_ns=HOUR_NS)  # All stamps are older than that.
    stage.tell_slots(0, 1, 1, 2, 1)
    stage.tell_slots(1, 1, channel_id=WEST)
    assert stage.counted()["late_by"][:2] == [3, 1]
