"""Divisor sets of the rate law: what a channel needs, and how much of a variable it carries."""

from __future__ import annotations

from fractions import Fraction
from math import lcm
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.rate_law import (
    CHANNEL_DIVISORS_MAX,
    EVERY_MAX,
    minimal_divisors,
    union_rate,
)

if TYPE_CHECKING:
    from random import Random

small_sets = st.sets(st.integers(1, 24), min_size=1, max_size=12)
large_sets = st.sets(st.integers(1, EVERY_MAX), min_size=13, max_size=40)
composite_sets = st.sets(
    st.builds(lambda a, b: 60 * a * b, st.integers(2, 40), st.integers(2, 40)),
    min_size=13,
    max_size=60,
)


def slots_due(divisors: set[int] | tuple[int, ...], slot_count: int) -> list[int]:
    return [slot for slot in range(slot_count) if any(slot % every == 0 for every in divisors)]


@given(small_sets)
def test_a_minimal_set_is_due_at_exactly_the_slots_that_were_asked_for(asked: set[int]) -> None:
    minimal = minimal_divisors(asked)
    assert set(minimal) <= asked
    assert slots_due(minimal, 2_000) == slots_due(asked, 2_000)


@given(st.one_of(small_sets, large_sets, composite_sets))
def test_no_divisor_of_a_minimal_set_is_a_multiple_of_another(asked: set[int]) -> None:
    minimal = minimal_divisors(asked)
    assert list(minimal) == sorted(minimal)
    assert not any(a % b == 0 for a in minimal for b in minimal if a != b)


@given(st.one_of(large_sets, composite_sets))
def test_too_many_divisors_are_rounded_down_so_that_nobody_is_served_less(asked: set[int]) -> None:
    minimal = minimal_divisors(asked)
    assert 1 <= len(minimal) <= CHANNEL_DIVISORS_MAX
    for every in asked:
        assert any(every % kept == 0 for kept in minimal)


@given(composite_sets, st.randoms(use_true_random=False))
def test_rounding_does_not_depend_on_the_order_of_asking(asked: set[int], random: Random) -> None:
    shuffled = list(asked)
    random.shuffle(shuffled)
    assert minimal_divisors(shuffled) == minimal_divisors(asked)


def test_twelve_divisors_stay_and_a_thirteenth_merges_the_two_that_share_most() -> None:
    twelve = (4, 6, 7, 9, 10, 11, 13, 17, 19, 23, 25, 29)
    assert minimal_divisors(twelve) == twelve
    # 10 and 25 share 5; 6 and 9 share only 3, all others 2 or 1.
    assert minimal_divisors((*twelve, 31)) == (4, 5, 6, 7, 9, 11, 13, 17, 19, 23, 29, 31)


def test_the_examples_of_the_source_need_no_multiple_of_90() -> None:
    assert minimal_divisors([3, 6, 21]) == (3,)
    assert minimal_divisors([3, 6, 21, 8, 21]) == (3, 8)
    assert minimal_divisors([]) == ()


@given(small_sets)
def test_the_union_rate_equals_a_count_over_one_whole_cycle(asked: set[int]) -> None:
    minimal = minimal_divisors(asked)
    cycle = lcm(*minimal)
    if cycle > 100_000:
        minimal, cycle = minimal[:3], lcm(*minimal[:3])
    assert union_rate(minimal) == Fraction(len(slots_due(minimal, cycle)), cycle)


@pytest.mark.parametrize(
    ("asked", "rate"),
    [
        ([], Fraction(0)),
        ([1], Fraction(1)),
        ([2, 3], Fraction(2, 3)),
        ([3, 8], Fraction(5, 12)),
        ([3, 6, 21, 8, 21], Fraction(5, 12)),
        ([7, 7, 14], Fraction(1, 7)),
    ],
)
def test_the_union_rate_of_known_sets(asked: list[int], rate: Fraction) -> None:
    assert union_rate(asked) == rate


@given(large_sets)
def test_the_union_rate_stays_exact_and_between_its_bounds_for_any_set(asked: set[int]) -> None:
    rate = union_rate(asked)
    minimal = minimal_divisors(asked)
    assert Fraction(1, minimal[0]) <= rate <= min(1, sum(Fraction(1, n) for n in minimal))
    assert rate >= Fraction(1, min(asked))
