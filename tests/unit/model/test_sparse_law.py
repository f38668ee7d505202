"""Sparse streams: which divisors cores can carry, and what is carried in the place of others."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core import reference_window
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.model.sparse_law import (
    FASTER_MAX,
    SPARSE_S_MIN,
    WINDOW_SLOTS,
    carried_every,
    is_carried,
)


def test_the_law_knows_the_cores_window_and_leaves_room_for_jitter() -> None:
    assert WINDOW_SLOTS == reference_window.WINDOW_SLOTS
    assert SPARSE_S_MIN * NS_PER_S >= 2 * reference_window.QUIET_NS


@pytest.mark.parametrize(
    ("every", "hertz", "carried"),
    [
        (255, 1_000, 255),
        (256, 1_000, 128),
        (300, 300, 150),
        (600, 300, 600),
        (1_000, 1_000, 250),
        (1_999, 1_000, None),
        (2_000, 1_000, 2_000),
        (257, 257, None),
        (256, 60, 256),
        (257, 50, 257),
    ],
    ids=str,
)
def test_a_divisor_beyond_the_window_is_carried_as_a_smaller_one_unless_it_is_slow(
    every: int, hertz: int, carried: int | None
) -> None:
    period = Period(1, hertz)
    if carried is not None:
        assert carried_every(every, period) == carried
        return
    with pytest.raises(IntervalNotSatisfiable) as refused:
        carried_every(every, period)
    assert "interval of 2 s" in refused.value.hint


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
    assert every <= FASTER_MAX * carried


def test_aperiodic_variables_have_no_slots() -> None:
    assert carried_every(1_000, None) == 1_000
