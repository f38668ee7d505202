"""Sparse streams: which divisors cores can carry, and what is carried in the place of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.rate_law import Period
from gridstat.model.sparse_law import LOWERED_MIN, WINDOW_SLOTS, carried_every, is_carried
from gridstat.model.window_law import WINDOW_LENGTHS


def test_the_law_knows_the_shortest_window() -> None:
    assert min(WINDOW_LENGTHS) == WINDOW_SLOTS


@pytest.mark.parametrize(
    ("every", "hertz", "carried"),
    [
        (256, 60, 256),
        (1_999, 1_000, 1_999),
        (60_000, 1_280, 60_000),
        (255, 1_281, 255),
        (256, 1_281, 128),
        (1_000, 4_800, 250),
        (9_600, 4_800, 240),
        (257, 4_800, None),
        (2 * 1_009, 4_800, None),
    ],
    ids=str,
)
def test_a_divisor_beyond_the_window_is_carried_as_a_smaller_one_if_the_variable_is_fast(
    every: int, hertz: int, carried: int | None
) -> None:
    period = Period(1, hertz)
    if carried is not None:
        assert carried_every(every, period) == carried
        return
    with pytest.raises(IntervalNotSatisfiable) as refused:
        carried_every(every, period)
    assert "between 32 and 255" in refused.value.hint


@given(st.integers(1, 10_000), st.integers(1, 10_000))
def test_what_is_carried_holds_all_that_was_asked_for(every: int, hertz: int) -> None:
    period = Period(1, hertz)
    try:
        carried = carried_every(every, period)
    except IntervalNotSatisfiable:
        assert not is_carried(every, period)
        return
    assert is_carried(carried, period)
    assert every % carried == 0
    assert carried == every or carried >= LOWERED_MIN


@given(st.integers(2, 10_000), st.integers(1, 10_000))
def test_whatever_is_below_a_divisor_that_is_carried_is_carried_too(every: int, hertz: int) -> None:
    period = Period(1, hertz)
    assert is_carried(every - 1, period) or not is_carried(every, period)


def test_aperiodic_variables_have_no_slots() -> None:
    assert carried_every(1_000, None) == 1_000
