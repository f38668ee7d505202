"""Derived values against their plain definitions."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.derived import (
    POINTS_MAX,
    Derivation,
    Maximum,
    Minimum,
    MovingAverage,
    RateOfChange,
    Scalar,
    Step,
)
from gridstat.model.errors import LayoutError
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import BuiltinType, DerivedValue, Field, FieldKind, RecordType, Value

FLOATS = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)
RECORD = RecordType("pair", (Field("a", FieldKind.INT8), Field("b", FieldKind.INT8)))


def run(derivation: Derivation, values: list[float], step_ns: int = NS_PER_S) -> list[Scalar]:
    step = derivation.begin()
    return [step(index * step_ns, value) for index, value in enumerate(values)]


@pytest.mark.feature("S0-30")
@given(values=FLOATS, points=st.integers(1, 20))
def test_windows_equal_what_anyone_would_compute_offline(values: list[float], points: int) -> None:
    windows = [values[max(0, i + 1 - points) : i + 1] for i in range(len(values))]
    assert run(Minimum(points), values) == [min(window) for window in windows]
    assert run(Maximum(points), values) == [max(window) for window in windows]
    expected = [fmean(window) for window in windows]
    assert run(MovingAverage(points), values) == pytest.approx(expected, abs=1e-9)


@pytest.mark.feature("S0-30")
def test_a_rate_of_change_is_per_second_and_starts_at_nothing() -> None:
    assert run(RateOfChange(), [1.0, 2.0, 0.0], step_ns=NS_PER_S // 2) == [0.0, 2.0, -4.0]


def test_a_stamp_that_stands_still_or_goes_back_leaves_the_rate() -> None:
    step = RateOfChange().begin()
    step(0, 0.0)
    assert step(NS_PER_S, 3.0) == 3.0
    assert step(NS_PER_S, 9.0) == 3.0
    assert step(0, 9.0) == 3.0
    assert step(2 * NS_PER_S, 4.0) == 1.0


def test_an_average_does_not_drift() -> None:
    step = MovingAverage(3).begin()
    for value in (1e16, 1.0, -1e16, 1.0, 1.0):
        last = step(0, value)
    assert last == pytest.approx((1.0 + 1.0 - 1e16) / 3)
    assert step(0, 1.0) == 1.0


def test_integers_stay_integers_where_that_is_possible() -> None:
    big = 2**62 + 1
    assert Maximum(2).begin()(0, big) == big
    assert Maximum(2).declared(BuiltinType.INT64).value_type is BuiltinType.INT64
    assert MovingAverage(2).declared(BuiltinType.INT64).value_type is BuiltinType.FLOAT64


def test_one_derivation_serves_two_publications_apart() -> None:
    highest = Maximum(5)
    first, second = highest.begin(), highest.begin()
    first(0, 9.0)
    assert second(0, 1.0) == 1.0


@pytest.mark.parametrize("value_type", [BuiltinType.BOOL, RECORD])
@pytest.mark.parametrize("derivation", [MovingAverage(2), RateOfChange(), Minimum(2), Maximum(2)])
def test_what_is_no_number_has_no_such_value(
    derivation: Derivation, value_type: BuiltinType | RecordType
) -> None:
    with pytest.raises(LayoutError, match="needs int64 or float64"):
        derivation.declared(value_type)


@pytest.mark.parametrize("points", [0, -1, POINTS_MAX + 1])
def test_a_window_is_bounded(points: int) -> None:
    for kind in (MovingAverage, Minimum, Maximum):
        with pytest.raises(LayoutError, match=str(points)):
            kind(points)


@dataclass(frozen=True, slots=True)
class Difference:
    """A user's own derivation: of two fields of a record."""

    def declared(self, _value_type: object) -> DerivedValue:
        return DerivedValue("difference", BuiltinType.INT64)

    def begin(self) -> Step:
        def step(_created_ns: int, value: Value) -> int:
            assert not isinstance(value, int | float)
            return int(value["a"]) - int(value["b"])

        return step


@pytest.mark.feature("S0-31")
def test_a_user_may_derive_from_a_whole_record() -> None:
    derivation: Derivation = Difference()
    assert derivation.declared(RECORD).name == "difference"
    assert derivation.begin()(0, {"a": 5, "b": 3}) == 2
