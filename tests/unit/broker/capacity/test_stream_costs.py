"""Cost of a variable for the divisors at which it is taken."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from gridstat.broker.capacity.stream_costs import StreamCost
from tests.unit.broker.clouds import variable


def test_the_price_of_a_variable_is_rate_times_share_times_bytes() -> None:
    stream_cost = StreamCost(variable(hertz=30))
    taken = ((0, (3, 8)),)
    assert stream_cost.price.events_per_s(taken)[0].value == Fraction(5, 12) * 30
    size = stream_cost.event_bytes(1_232)
    assert size == 68
    assert stream_cost.price.bytes_per_s(taken, size)[0].value == Fraction(5, 12) * 30 * 68


def test_prices_of_more_divisors_than_are_remembered_stay_right() -> None:
    price = StreamCost(variable(hertz=60)).price
    for first, second in pairwise(range(1, 600)):
        price.events_per_s(((0, (first,)),))
        assert price.events_per_s(((0, (second,)),))[0].value == Fraction(60, second)


def test_variables_of_one_rate_share_what_was_worked_out_for_it() -> None:
    assert StreamCost(variable(1, hertz=60)).price is StreamCost(variable(2, hertz=60)).price
    assert StreamCost(variable(1, hertz=60)).price is not StreamCost(variable(1, hertz=30)).price


def test_a_step_names_what_is_charged_before_and_after() -> None:
    price = StreamCost(variable(hertz=60)).price
    ((mode, was, now),) = price.byte_changes(((0, (2,)),), ((0, (1, 2)),), 100)
    assert mode == 0
    assert was is not None
    assert now is not None
    assert [was.value, now.value] == [Fraction(3_000), Fraction(6_000)]
    assert price.rate_changes(((0, (1,)),), ((0, (1, 2)),)) == ()
