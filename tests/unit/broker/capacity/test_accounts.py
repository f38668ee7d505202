"""Steps of predictions: small enough to be near, large enough to move rarely."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.accounts import stepped_us


@given(st.integers(0, 10**7))
def test_a_step_is_never_below_and_at_most_an_eighth_or_ten_above(us: int) -> None:
    assert us <= stepped_us(us) <= us + max(10, us // 8 + 1)
    assert stepped_us(stepped_us(us)) == stepped_us(us)


@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_steps_keep_the_order(one: int, other: int) -> None:
    assert (stepped_us(one) <= stepped_us(other)) or one > other


def test_a_prediction_moves_at_most_120_times_on_its_way_to_a_second() -> None:
    assert len({stepped_us(us) for us in range(0, 1_000_000, 7)}) <= 120
