"""Missing events of a contract, each reported once."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.endpoint.arrival_clock import ArrivalClock
from gridstat.endpoint.slot_clock import StartTime
from gridstat.endpoint.violation import MISSED_MAX, Missed, SlotWatch, Terms
from gridstat.model.rate_law import Period

MS = 1_000_000
TERMS = Terms(Period(1, 100), 0, 1, 20 * MS)
STEADY = 5_000 * MS
"""Lag of the steady clock of these tests behind the stamps."""


def saw(watch: SlotWatch, created_ms: float, latency_ms: float = 2) -> bool:
    created_ns = int(created_ms * MS)
    age_ns = int(latency_ms * MS)
    return watch.saw(created_ns, created_ns + age_ns - STEADY, age_ns)


def missed_at(watch: SlotWatch, ms: float) -> list[int]:
    return [each.slot for each in watch.overdue(int(ms * MS) - STEADY)]


def begun(terms: Terms = TERMS, at_ms: float = 9_990) -> SlotWatch:
    """A watch whose contract begins a slot before the first event of most of these tests."""
    return SlotWatch(terms, begin_at(at_ms))


def begin_at(ms: float) -> StartTime:
    return StartTime(int(ms * MS) - STEADY, int(ms * MS))


def test_a_contract_over_which_nothing_ever_comes_is_missing_after_interval_and_latency() -> None:
    watch = begun(at_ms=10_000)
    assert watch.next_due_ns == 10_030 * MS - STEADY
    assert missed_at(watch, 10_029) == []
    assert missed_at(watch, 10_050) == [1_001, 1_002, 1_003]


def test_the_first_event_is_not_held_to_a_clock_of_ours_that_is_wrong() -> None:
    watch = begun(at_ms=3_600_000)
    watch.saw(10_000 * MS, 3_600_012 * MS - STEADY, 0)
    assert missed_at(watch, 3_600_041) == []
    assert missed_at(watch, 3_600_042) == [1_001]


@pytest.mark.feature("S0-38", "S1-6")
def test_a_stopped_publisher_is_noticed_after_interval_and_latency() -> None:
    watch = begun()
    saw(watch, 10_000)
    assert watch.next_due_ns == 10_030 * MS - STEADY
    assert missed_at(watch, 10_029.9) == []
    assert watch.overdue(10_030 * MS - STEADY) == [Missed(1_001, 10_010 * MS)]
    assert missed_at(watch, 10_050) == [1_002, 1_003]


def test_each_slot_is_told_once() -> None:
    watch = begun()
    saw(watch, 10_000)
    assert missed_at(watch, 10_030) == [1_001]
    assert missed_at(watch, 10_030) == []
    assert not saw(watch, 10_010, latency_ms=21)
    assert missed_at(watch, 10_039) == []


def test_events_in_time_are_never_missed() -> None:
    watch = begun()
    for slot in range(1_000, 1_100):
        assert saw(watch, slot * 10, latency_ms=19)
        assert missed_at(watch, slot * 10 + 19) == []


@pytest.mark.feature("S0-121")
def test_a_short_interruption_in_which_nothing_was_due_is_no_violation() -> None:
    watch = begun(Terms(Period(1, 100), 0, 100, 20 * MS))
    saw(watch, 10_000)
    assert missed_at(watch, 10_900) == []
    saw(watch, 11_000)
    assert missed_at(watch, 11_030) == []


@given(
    order=st.permutations(range(1, 9)),
    lost=st.sets(st.integers(1, 8)),
)
def test_events_out_of_order_count_as_long_as_they_are_in_time(
    order: list[int], lost: set[int]
) -> None:
    watch = begun(Terms(Period(1, 100), 0, 1, 200 * MS))
    saw(watch, 10_000)
    for step in order:
        if step not in lost:
            saw(watch, 10_000 + 10 * step, latency_ms=100 - 10 * step)
    assert missed_at(watch, 10_280) == [1_000 + step for step in sorted(lost)]


def test_only_due_slots_are_watched() -> None:
    watch = begun(Terms(Period(1, 100), 0, 4, 20 * MS), at_ms=10_020)
    saw(watch, 10_020)
    assert missed_at(watch, 10_100) == [1_004, 1_008]


def test_stamps_off_the_middle_of_their_slot_shift_what_is_expected() -> None:
    watch = begun()
    saw(watch, 10_003)
    assert missed_at(watch, 10_032) == []
    assert watch.overdue(10_033 * MS - STEADY) == [Missed(1_001, 10_013 * MS)]


def test_a_clock_ahead_of_ours_makes_nothing_early() -> None:
    watch = begun()
    saw(watch, 10_000, latency_ms=-50)
    assert watch.next_due_ns == 9_950 * MS + 30 * MS - STEADY


def test_after_a_long_pause_only_the_newest_slots_are_told() -> None:
    watch = begun()
    saw(watch, 10_000)
    found = missed_at(watch, 1_000_000)
    assert MISSED_MAX <= len(found) <= MISSED_MAX + 1
    assert found[-1] == 99_998
    assert watch.skipped + len(found) == 99_998 - 1_000


def test_another_period_is_watched_from_its_beginning() -> None:
    watch = begun()
    saw(watch, 10_000)
    watch.renew(Terms(Period(1, 50), 0, 1, 20 * MS), begin_at(20_000))
    assert missed_at(watch, 20_039) == []
    assert missed_at(watch, 20_040) == [1_001]


def test_other_terms_of_the_same_slots_forget_nothing_that_is_due() -> None:
    watch = begun(Terms(Period(1, 100), 0, 1, 2_000 * MS))
    saw(watch, 10_000)
    saw(watch, 10_030)
    watch.renew(Terms(Period(1, 100), 0, 2, 20 * MS), begin_at(10_035))
    assert missed_at(watch, 10_041) == [1_002]


def test_a_publisher_whose_clock_is_set_back_is_watched_by_its_new_stamps() -> None:
    watch = begun()
    told = 0
    for slot in range(1_000, 1_300):
        back_ms = 3_600_000 if slot >= 1_100 else 0
        arrived_ns = (10 * slot + 2) * MS - STEADY
        watch.saw((10 * slot - back_ms) * MS + 3_600_000 * MS, arrived_ns, 2 * MS)
        told += len(watch.overdue(arrived_ns))
    assert told <= 101  # The second until it is believed, and nothing after that.


def test_a_publisher_whose_clock_is_set_forward_misses_nothing() -> None:
    watch = begun()
    told = 0
    for slot in range(1_000, 1_300):
        ahead_ms = 3_600_000 if slot >= 1_100 else 0
        arrived_ns = (10 * slot + 2) * MS - STEADY
        watch.saw((10 * slot + ahead_ms) * MS, arrived_ns, 2 * MS - ahead_ms * MS)
        told += len(watch.overdue(arrived_ns))
    assert told == 0


def test_a_wall_clock_that_is_set_ahead_is_not_believed_while_events_look_young() -> None:
    clock = ArrivalClock(wall_ns=1_000_000 * MS, steady_ns=0)
    clock.observe(wall_ns=1_060_100 * MS, steady_ns=100 * MS)
    age_ns = 60_002 * MS
    clock.settle(age_ns)
    assert clock.jumps == 1
    assert age_ns + clock.correction_ns == 2 * MS


def test_a_wall_clock_that_is_set_right_is_believed() -> None:
    clock = ArrivalClock(wall_ns=0, steady_ns=0)
    clock.observe(wall_ns=1_000_100 * MS, steady_ns=100 * MS)
    clock.settle(age_ns=2 * MS)
    assert clock.correction_ns == 0


def test_a_clock_that_is_slewed_is_followed() -> None:
    clock = ArrivalClock(wall_ns=0, steady_ns=0)
    for step in range(1, 1_000):
        clock.observe(wall_ns=step * 101 * MS, steady_ns=step * 100 * MS)
    assert clock.correction_ns == 0
    assert clock.jumps == 0
