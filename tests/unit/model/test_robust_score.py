"""Score of an unusual value, by median and median distance."""

from __future__ import annotations

from statistics import NormalDist, median

import pytest

from gridstat.model.robust_score import NORMAL_QUARTILE, VALUES_MIN, is_outlier, robust_score


def scores(values: list[float]) -> list[float]:
    middle = median(values)
    spread = median(abs(value - middle) for value in values)
    return [robust_score(value, middle, spread) for value in values]


def test_for_normal_values_a_score_is_a_number_of_deviations() -> None:
    assert pytest.approx(NormalDist().inv_cdf(0.75), rel=1e-12) == NORMAL_QUARTILE
    quartile = NormalDist(10, 4).inv_cdf(0.75) - 10
    assert robust_score(22, 10, quartile) == pytest.approx(3.0)


def test_one_wild_value_does_not_hide_itself() -> None:
    found = scores([1, 1, 2, 1, 3, 0, 1, 1_000, 1, 2])
    assert [is_outlier(each, 10) for each in found] == [False] * 7 + [True] + [False] * 2


def test_among_equals_and_among_few_nothing_is_unusual() -> None:
    assert scores([5.0] * 9) == [0.0] * 9
    assert not is_outlier(99.0, VALUES_MIN - 1)
    assert is_outlier(99.0, VALUES_MIN)
