"""`gridstat publish`: which instant the next value belongs to."""

from __future__ import annotations

import pytest

from gridstat.console.cli.publish import next_slot
from gridstat.model.rate_law import NS_PER_S, Period

TEN = Period(1, 10)


@pytest.mark.parametrize(
    ("slot", "now_s", "expected"),
    [(50, 5.0, 51), (50, 4.2, 51), (50, 9.04, 90)],
    ids=["in time", "ahead of time", "after a pause"],
)
def test_values_after_a_pause_bear_the_present_instant(
    slot: int, now_s: float, expected: int
) -> None:
    assert next_slot(slot, round(now_s * NS_PER_S), TEN) == expected


def test_a_slow_variable_is_never_stamped_with_an_instant_long_past() -> None:
    every_five_seconds = Period(5, 1)
    assert next_slot(1, 52 * NS_PER_S, every_five_seconds) == 11
