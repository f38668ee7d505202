"""Promised slots between two instants, by counting and by the law."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.due_slots import due_between, first_slot_from, slot_instant_ns
from gridstat.model.rate_law import NS_PER_S, Period

PERIODS = st.builds(Period, st.integers(1, 7), st.integers(1, 240))
INSTANTS = st.integers(-2 * NS_PER_S, 2 * NS_PER_S)


@given(INSTANTS, st.integers(0, NS_PER_S), PERIODS, st.integers(1, 9), st.integers(0, NS_PER_S))
def test_the_law_counts_what_is_found_by_looking_at_every_slot(
    from_ns: int, length_ns: int, period: Period, every: int, phase_ns: int
) -> None:
    to_ns = from_ns + length_ns
    found = [
        slot
        for slot in range(-1_500, 1_500)
        if from_ns <= phase_ns + slot * period.period_ns < to_ns and slot % every == 0
    ]
    assert due_between(from_ns, to_ns, period, every=every, phase_ns=phase_ns) == len(found)


@given(INSTANTS, PERIODS, st.integers(0, NS_PER_S))
def test_the_first_slot_is_not_before_and_the_one_ahead_of_it_is(
    instant_ns: int, period: Period, phase_ns: int
) -> None:
    slot = first_slot_from(instant_ns, period, phase_ns)
    assert phase_ns + slot * period.period_ns >= instant_ns
    assert phase_ns + (slot - 1) * period.period_ns < instant_ns


def test_hours_add_up_to_a_day_and_nothing_is_due_backwards() -> None:
    period, day_ns = Period(1, 30), 86_400 * NS_PER_S
    hours = [
        due_between(at * day_ns // 24, (at + 1) * day_ns // 24, period, every=7, phase_ns=5)
        for at in range(24)
    ]
    assert sum(hours) == due_between(0, day_ns, period, every=7, phase_ns=5)
    assert due_between(day_ns, 0, period) == 0


def test_an_instant_between_two_nanoseconds_is_rounded_down() -> None:
    assert Period(1, 3).period_ns == Fraction(NS_PER_S, 3)
    assert slot_instant_ns(1, Period(1, 3)) == 333_333_333
    assert slot_instant_ns(2, Period(1, 3), phase_ns=10) == 666_666_676
