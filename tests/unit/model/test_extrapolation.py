"""Extrapolation against functions whose next value is known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gridstat.model.errors import LayoutError
from gridstat.model.extrapolation import (
    Average,
    Extrapolation,
    Polynomial,
    PolynomialAverage,
    Rational,
    UserExtrapolation,
    guess,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

NOW_NS = 1_700_000_000_000_000_000
STEP_NS = 16_666_667


def times(points: int) -> list[int]:
    return [NOW_NS + index * STEP_NS for index in range(points)]


def following(how: Extrapolation, function: Callable[[float], float], points: int) -> float | None:
    known = [function(float(index)) for index in range(points)]
    return guess(how, times(points), known, NOW_NS + points * STEP_NS)


@pytest.mark.feature("S0-124")
@given(
    coefficients=st.lists(st.integers(-5, 5), min_size=1, max_size=5),
    extra=st.integers(0, 6),
)
def test_a_polynomial_of_no_higher_order_is_found_exactly(
    coefficients: list[int], extra: int
) -> None:
    order = len(coefficients) - 1
    points = order + 1 + extra

    def function(x: float) -> float:
        return float(sum(c * x**power for power, c in enumerate(coefficients)))

    found = following(Polynomial(order, points), function, points)
    assert found == pytest.approx(function(float(points)), rel=1e-6, abs=1e-4)


@pytest.mark.feature("S0-124")
def test_an_average_is_the_mean_of_the_last_points() -> None:
    assert guess(Average(3), times(5), [9.0, 9.0, 1.0, 2.0, 6.0], NOW_NS + 5 * STEP_NS) == 3.0


@pytest.mark.feature("S0-124")
def test_an_average_over_orders_is_the_mean_of_their_guesses() -> None:
    values = [1.0, 4.0, 2.0, 8.0]
    at_ns = NOW_NS + 4 * STEP_NS
    single = [guess(Polynomial(order, 4), times(4), values, at_ns) for order in (0, 1, 3)]
    found = guess(PolynomialAverage((0, 1, 3), 4), times(4), values, at_ns)
    assert found == pytest.approx(sum(value or 0.0 for value in single) / 3)


@pytest.mark.feature("S0-124")
@given(a=st.integers(-5, 5), b=st.integers(-5, 5), c=st.integers(1, 5), d=st.integers(1, 5))
def test_a_rational_function_is_found_exactly(a: int, b: int, c: int, d: int) -> None:
    assume(a * d != b * c)

    def function(x: float) -> float:
        return (a * x + b) / (c * x + d)

    found = following(Rational(3), function, 3)
    if found is not None:  # A pole on the way is allowed, a wrong number is not.
        assert found == pytest.approx(function(3.0), rel=1e-6, abs=1e-6)


def test_a_rational_function_does_find_one() -> None:
    assert following(Rational(4), lambda x: 1 / (x + 2), 4) == pytest.approx(1 / 6)
    assert following(Rational(4), lambda _: 7.0, 4) == 7.0


def test_values_that_leave_a_pole_yield_nothing() -> None:
    # The function through (0, 1) and (1, 2) of order 0 over 1 has its pole at 2.
    assert guess(Rational(2), times(2), [1.0, 2.0], NOW_NS + 2 * STEP_NS) is None


@pytest.mark.feature("S0-125")
def test_a_user_may_write_a_function_and_choose_how_many_points_it_sees() -> None:
    seen: list[Sequence[float]] = []

    def hold(_times: Sequence[int], values: Sequence[float], _at: int) -> float:
        seen.append(tuple(values))
        return values[-1]

    assert guess(UserExtrapolation(hold, points=2), times(3), [1.0, 2.0, 3.0], NOW_NS) == 3.0
    assert seen == [(2.0, 3.0)]


@pytest.mark.feature("S0-125")
@pytest.mark.parametrize("how", [Polynomial(3, 4), PolynomialAverage(), Rational(), Average()])
def test_fewer_points_at_the_start_still_give_a_guess(how: Extrapolation) -> None:
    assert guess(how, times(1), [5.0], NOW_NS + STEP_NS) == 5.0
    assert guess(how, [], [], NOW_NS) is None


@pytest.mark.parametrize("answer", [float("nan"), float("inf")])
def test_what_is_no_number_is_no_guess(answer: float) -> None:
    assert guess(UserExtrapolation(lambda *_: answer), times(1), [1.0], NOW_NS) is None


def test_a_function_that_fails_gives_no_guess() -> None:
    assert guess(UserExtrapolation(lambda *_: 1 / 0), times(1), [1.0], NOW_NS) is None


def test_repeated_stamps_do_not_break_a_polynomial() -> None:
    found = guess(Polynomial(2, 3), [NOW_NS] * 3, [1.0, 2.0, 3.0], NOW_NS + STEP_NS)
    assert found == pytest.approx(2.0)


@pytest.mark.parametrize(("order", "points"), [(9, 20), (-1, 4), (4, 4)])
def test_an_order_is_bounded_and_below_the_points(order: int, points: int) -> None:
    with pytest.raises(LayoutError, match=f"order {order}"):
        Polynomial(order, points)
    with pytest.raises(LayoutError, match=f"order {order}"):
        PolynomialAverage((order,), points)


@pytest.mark.parametrize("points", [0, 65])
def test_the_points_are_bounded(points: int) -> None:
    for kind in (Average, Rational):
        with pytest.raises(LayoutError, match=str(points)):
            kind(points)


def test_an_average_over_no_order_is_refused() -> None:
    with pytest.raises(LayoutError, match="at least one order"):
        PolynomialAverage(())
