"""Identifiers from leased blocks: unique, ascending, and none again within its quarantine."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.identifier_pool import IdentifierPool

if TYPE_CHECKING:
    from collections.abc import Iterator


def pool(*blocks: tuple[int, int], quarantine_ns: int = 100) -> IdentifierPool:
    found = IdentifierPool(quarantine_ns)
    for first, count in blocks:
        found.lease(first, count)
    return found


def test_blocks_are_used_in_ascending_order_and_then_there_are_none() -> None:
    found = pool((20, 2), (5, 1))
    assert found.fresh() == 3
    assert [found.take(0) for _ in range(4)] == [5, 20, 21, None]
    assert found.fresh() == 0


def test_a_lower_block_that_comes_after_a_higher_one_is_used_too() -> None:
    found = pool((1, 2))
    assert [found.take(0) for _ in range(2)] == [1, 2]
    found.lease(100, 2)
    assert [found.take(0) for _ in range(2)] == [100, 101]
    found.lease(10, 2)
    assert found.fresh() == 2
    assert [found.take(0) for _ in range(3)] == [10, 11, None]


def test_after_a_start_a_lower_block_that_was_never_used_rests_and_is_used_then() -> None:
    found = pool((100, 2), (10, 2))
    found.resume({100}, 100, now_ns=0)
    assert [found.take(0) for _ in range(2)] == [101, None]
    assert [found.take(100) for _ in range(3)] == [10, 11, None]


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(1, 9), st.booleans()), max_size=30))
def test_however_blocks_come_and_overlap_no_identifier_comes_twice(
    steps: list[tuple[int, int, bool]],
) -> None:
    before = {3, 17}
    found = pool((1, 2), quarantine_ns=1_000)
    found.resume(before, 17, now_ns=0)
    leased: list[tuple[int, int]] = [(1, 2)]
    taken = set(before)
    for first, count, is_restarted in steps:
        found.lease(first, count)
        leased.append((first, count))
        for _ in range(count // 2):
            number = found.take(0)
            assert number not in taken
            taken |= {number} if number is not None else set()
        if is_restarted:
            found = pool(*leased, quarantine_ns=1_000)
            found.resume(taken, max(taken), now_ns=0)


def test_a_block_that_is_leased_twice_is_one() -> None:
    found = pool((5, 2), (5, 2))
    assert found.fresh() == 2


@pytest.mark.feature("S0-22")
def test_an_identifier_rests_for_its_quarantine() -> None:
    found = pool((1, 1))
    assert found.take(0) == 1
    found.give_back(1, 50)
    assert found.take(149) is None
    assert found.rested(150, 5) == 1
    assert found.take(150) == 1


def test_no_more_than_are_wanted_of_those_that_have_rested_are_counted() -> None:
    found = pool((1, 100))
    found.resume(set(), 100, now_ns=0)
    found.take(100)
    found.give_back(1, 110)
    looks = 0

    class Counted(deque[tuple[int, int]]):
        def __iter__(self) -> Iterator[tuple[int, int]]:
            nonlocal looks
            for each in super().__iter__():
                looks += 1
                yield each

    found._resting = Counted(found._resting)
    assert found.rested(50, 3) == 0
    assert looks == 1
    assert found.rested(150, 3) == 3
    assert looks <= 5
    assert found.rested(150, 1_000) == 99


def test_after_a_start_whatever_is_not_used_rests_from_then_on() -> None:
    found = pool((1, 4))
    found.resume({2}, 3, now_ns=1_000)
    assert found.take(1_099) == 4
    assert [found.take(1_100) for _ in range(3)] == [1, 3, None]


def test_a_number_that_is_not_ours_is_not_given_out() -> None:
    found = pool((10, 1))
    found.take(0)
    found.give_back(3, 0)
    assert found.take(1_000) is None


def test_a_number_rests_once_however_often_it_is_given_back() -> None:
    found = pool((1, 2))
    found.take(0)
    found.give_back(1, 0)
    found.give_back(1, 0)
    assert [found.take(100) for _ in range(3)] == [1, 2, None]


def test_after_a_start_what_rests_already_is_not_given_back_again() -> None:
    found = pool((1, 2))
    found.resume(set(), 1, now_ns=0)
    found.give_back(1, 0)
    assert [found.take(100) for _ in range(3)] == [1, 2, None]


def test_after_a_start_what_is_used_can_be_given_back() -> None:
    found = pool((1, 2))
    found.resume({1, 7}, 2, now_ns=0)
    found.give_back(1, 10)
    found.give_back(7, 10)
    assert [found.take(110) for _ in range(3)] == [2, 1, None]


@pytest.mark.feature("S0-22")
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200))
def test_nobody_has_an_identifier_that_another_has_or_had_within_the_quarantine(
    steps: list[tuple[bool, int]],
) -> None:
    found = pool((1, 5), (9, 3))
    now_ns = 0
    held: list[int] = []
    freed_ns: dict[int, int] = {}
    for is_taking, passed_ns in steps:
        now_ns += passed_ns
        if not is_taking and held:
            number = held.pop(0)
            freed_ns[number] = now_ns
            found.give_back(number, now_ns)
        elif is_taking and (taken := found.take(now_ns)) is not None:
            assert taken not in held
            assert now_ns - freed_ns.get(taken, -100) >= 100
            held.append(taken)
