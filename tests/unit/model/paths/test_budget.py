"""Bounds of a search in time and in steps."""

from __future__ import annotations

from itertools import count

from gridstat.model.paths.budget import STEPS_PER_CLOCK_READ, STEPS_PER_S_MAX, Budget


def test_a_budget_is_spent_when_its_time_has_come_and_stays_so() -> None:
    now_s = [5.0]
    budget = Budget(lambda: now_s[0], 1.0)
    assert not budget.is_spent(STEPS_PER_CLOCK_READ)
    now_s[0] = 6.0
    assert budget.is_spent(STEPS_PER_CLOCK_READ)
    now_s[0] = 0.0
    assert budget.is_spent()
    assert budget.was_spent


def test_a_clock_that_stands_still_does_not_let_a_search_run_for_ever() -> None:
    budget = Budget(lambda: 0.0, 0.01)
    steps = 0
    while not budget.is_spent():
        steps += 1
        assert steps <= STEPS_PER_S_MAX * 0.01 + STEPS_PER_CLOCK_READ


def test_the_clock_is_not_read_at_every_step() -> None:
    reads = count()
    budget = Budget(lambda: next(reads) * 0.0, 1.0)
    for _ in range(10 * STEPS_PER_CLOCK_READ):
        budget.is_spent()
    assert next(reads) == 11


def test_a_share_ends_before_the_whole() -> None:
    now_s = [0.0]
    budget = Budget(lambda: now_s[0], 1.0)
    share = budget.share(4)
    now_s[0] = 0.25
    assert share.is_spent(STEPS_PER_CLOCK_READ)
    assert not budget.is_spent(STEPS_PER_CLOCK_READ)
