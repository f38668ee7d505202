"""Window of copies by ways: passed slots, those of each way, and those still open."""

from __future__ import annotations

import random

import pytest

from gridstat.model.copy_window import (
    COPY_PATHS,
    COPY_SLOTS,
    PAGE_SLOTS,
    CopyWindow,
    counted_every,
    open_slots,
)
from gridstat.model.rate_law import Period
from gridstat.model.window_law import window_slots

FIRST = 1_000_000


def missed(window: CopyWindow, open_: int = 0) -> list[int]:
    counted = window.counts(open_)
    return [counted.passed - came for came in counted.came]


def bring(window: CopyWindow, *slots: int, ways: tuple[int, ...] = (0, 1)) -> None:
    for slot in slots:
        for at, way in enumerate(ways):
            window.note(way, FIRST + slot, is_first=at == 0)


def test_a_way_has_missed_what_another_brought_and_it_did_not() -> None:
    window = CopyWindow()
    bring(window, 0, 1, 2)
    bring(window, 3, 4, ways=(0,))
    bring(window, 5)
    assert missed(window)[:2] == [0, 2]
    assert window.counts(0).passed == 6
    assert window.counts(0).first[:2] == (6, 0)


def test_what_no_way_brought_is_missed_by_none_of_them() -> None:
    window = CopyWindow()
    bring(window, 0, 1, 9)
    assert missed(window)[:2] == [0, 0]


def test_a_copy_under_way_is_not_missed() -> None:
    window = CopyWindow()
    bring(window, *range(10))
    bring(window, 10, 11, 12, ways=(0,))
    assert missed(window, 3)[1] == 0
    bring(window, 10, 11, 12, ways=(1,))
    assert missed(window)[1] == 0


def test_what_has_left_the_window_stays_counted() -> None:
    window = CopyWindow()
    bring(window, 0, ways=(0,))
    for slot in range(1, 3 * COPY_SLOTS):
        bring(window, slot)
        assert missed(window)[1] == 1
    bring(window, 0, ways=(1,))  # Too late: its slot is closed.
    assert missed(window)[1] == 1


@pytest.mark.parametrize("to", [COPY_SLOTS, 10**9, -COPY_SLOTS, -(10**5)])
def test_a_jump_of_the_clock_judges_all_and_goes_on_from_there(to: int) -> None:
    window = CopyWindow()
    bring(window, 0, 1, 2)
    bring(window, 3, ways=(0,))
    bring(window, to, to + 1)
    counted = window.counts(0)
    assert (counted.passed, *counted.came[:2]) == (6, 6, 5)


def test_the_same_way_twice_is_one_copy() -> None:
    window = CopyWindow()
    bring(window, 0, ways=(0, 0, 0))
    assert window.counts(0).came[0] == 1


@pytest.mark.parametrize("seed", range(20))
def test_counts_never_fall_and_tell_every_slot_once_it_is_settled(seed: int) -> None:
    rng = random.Random(seed)
    window = CopyWindow()
    lost = [0] * COPY_PATHS
    due: list[tuple[int, int, int]] = []  # When, slot, way.
    for slot in range(2_000):
        ways = [way for way in range(COPY_PATHS) if rng.random() < 0.8]
        for way in range(COPY_PATHS):
            lost[way] += bool(ways) and way not in ways
        due += [(slot + rng.randrange(20), slot, way) for way in ways]
    brought: set[int] = set()
    before = window.counts(40)
    for _, slot, way in sorted(due):
        window.note(way, FIRST + slot, is_first=slot not in brought)
        brought.add(slot)
        counted = window.counts(40)
        assert counted.passed >= before.passed
        assert all(now >= then for now, then in zip(counted.came, before.came, strict=True))
        before = counted
    assert missed(window) == lost
    assert sum(window.first) == window.counts(0).passed == len(brought)


@pytest.mark.parametrize(
    ("period", "every", "expected"),
    [
        (Period(1, 60), 1, 62),
        (Period(1, 60), 30, 4),
        (Period(1, 1), 1, 3),
        (Period(3_600, 1), 1, 2),
        (Period(1, 1_000), 1, COPY_SLOTS),
    ],
)
def test_a_second_of_slots_is_left_open(period: Period, every: int, expected: int) -> None:
    assert open_slots(period, every) == expected


@pytest.mark.parametrize(
    ("hertz", "every", "expected"),
    [(60, 1, 1), (320, 1, 1), (321, 1, 8), (1_000, 4, 8), (4_000, 1, 32), (4_000, 40, 40)],
)
def test_a_fast_variable_is_sampled_so_that_as_much_time_has_room_as_in_its_window(
    hertz: int, every: int, expected: int
) -> None:
    period = Period(1, hertz)
    assert counted_every(period, every) == expected
    assert (COPY_SLOTS - PAGE_SLOTS) * expected >= window_slots(period) or hertz <= 320
