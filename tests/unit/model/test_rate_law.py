"""The rate law against its definition, the source's own formula and the source's examples."""

from __future__ import annotations

from fractions import Fraction
from math import ceil
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gridstat.model.errors import IntervalNotSatisfiable, InvalidPeriod
from gridstat.model.rate_law import (
    EVERY_MAX,
    NS_PER_S,
    PERIOD_PART_MAX,
    SLOT_MAX,
    SLOT_MIN,
    Period,
    every_for,
    is_due,
    slot_of,
)
from tests.golden.load import load_golden

NS_PER_MS = 1_000_000
GOLDEN = load_golden("rate_filter.toml")

periods = st.builds(Period, st.integers(1, 3_600), st.integers(1, 100_000_000))
slots = st.integers(0, 10**9)
phases = st.integers(0, 2**63)
divisors = st.integers(1, 10_000)


def milliseconds(count: int) -> Period:
    return Period(count, 1_000)


def stamps_of(slot: int, period: Period, phase_ns: int) -> tuple[int, int]:
    """The first and the last whole nanosecond within half a period of a slot's nominal time."""
    nominal_ns = phase_ns + slot * period.period_ns
    half_ns = period.period_ns / 2
    return ceil(nominal_ns - half_ns), ceil(nominal_ns + half_ns) - 1


def function_4_1(created: int, pub_interval: int, sub_interval: int) -> bool:
    """The source's filter, word for word (S0 A7): whole numbers of any one unit."""
    half = -(-pub_interval // 2)
    return (created + half) % sub_interval < pub_interval


@pytest.mark.feature("S0-61", "S3-4")
@given(st.data(), slots, periods, phases, divisors)
def test_a_stamp_within_half_a_period_is_kept_iff_the_divisor_divides_its_slot(
    data: st.DataObject, slot: int, period: Period, phase_ns: int, every: int
) -> None:
    first_ns, last_ns = stamps_of(slot, period, phase_ns)
    created_ns = data.draw(
        st.one_of(st.just(first_ns), st.just(last_ns), st.integers(first_ns, last_ns))
    )
    assert slot_of(created_ns, period, phase_ns) == slot
    assert is_due(created_ns, period, every, phase_ns) == (slot % every == 0)


@given(slots, periods, phases)
def test_the_upper_edge_of_a_slot_belongs_to_the_next(
    slot: int, period: Period, phase_ns: int
) -> None:
    first_ns, last_ns = stamps_of(slot, period, phase_ns)
    assert slot_of(first_ns - 1, period, phase_ns) == slot - 1
    assert slot_of(last_ns + 1, period, phase_ns) == slot + 1


@pytest.mark.feature("S0-61", "S3-4")
@given(st.integers(1, 5_000), st.integers(1, 50), st.integers(0, 4_000_000_000_000))
@example(half_ms=25, every=2, created_ms=75)
@example(half_ms=25, every=2, created_ms=124)
def test_the_law_equals_the_source_for_even_millisecond_intervals(
    half_ms: int, every: int, created_ms: int
) -> None:
    period_ms = 2 * half_ms
    ours = is_due(created_ms * NS_PER_MS, milliseconds(period_ms), every)
    assert ours == function_4_1(created_ms, period_ms, every * period_ms)


def test_the_law_is_symmetric_where_the_source_is_off_by_one_unit() -> None:
    every_third_of_5_ms = [
        created for created in range(8, 25) if is_due(created * NS_PER_MS, milliseconds(5), 3)
    ]
    by_the_source = [created for created in range(8, 25) if function_4_1(created, 5, 15)]
    assert every_third_of_5_ms == [13, 14, 15, 16, 17]
    assert by_the_source == [12, 13, 14, 15, 16]


@pytest.mark.feature("S0-61")
@pytest.mark.parametrize("edge", GOLDEN["edge"], ids=lambda edge: edge["name"])
def test_stamps_pass_up_to_the_edges_that_the_source_gives(edge: dict[str, Any]) -> None:
    period = milliseconds(edge["period"])
    every = every_for(milliseconds(edge["interval"]), period)
    passes = range(edge["passes"]["first"], edge["passes"]["last"] + 1)
    drops = range(edge["drops"]["first"], edge["drops"]["last"] + 1)
    assert all(is_due(created * NS_PER_MS, period, every) for created in passes)
    assert not any(is_due(created * NS_PER_MS, period, every) for created in drops)


@pytest.mark.feature("S0-62")
@pytest.mark.parametrize("timeline", GOLDEN["timeline"], ids=lambda timeline: timeline["name"])
def test_channels_carry_the_stamps_that_the_source_gives(timeline: dict[str, Any]) -> None:
    period = milliseconds(timeline["period"])
    for channel in timeline["channel"]:
        asked = [every_for(milliseconds(interval), period) for interval in channel["intervals"]]
        carried = [
            created
            for created in range(timeline["from"], timeline["until"] + 1, timeline["period"])
            if any(is_due(created * NS_PER_MS, period, every) for every in asked)
        ]
        assert carried == channel["stamps"], channel["name"]


@pytest.mark.feature("S3-4")
@given(
    st.integers(0, 10**9),
    st.integers(1, 40),
    st.lists(st.integers(-4_999_999, 4_999_999), min_size=10, max_size=10),
)
def test_variables_published_together_are_kept_together_whatever_their_jitter(
    slot: int, every: int, jitters_ns: list[int]
) -> None:
    period = Period(1, 100)
    nominal_ns = slot * 10 * NS_PER_MS
    kept = {is_due(nominal_ns + jitter_ns, period, every) for jitter_ns in jitters_ns}
    assert len(kept) == 1


@pytest.mark.feature("S3-5")
@pytest.mark.parametrize("rounding", GOLDEN["rounding"], ids=lambda row: f"{row['asked']} ms")
def test_an_interval_is_rounded_down_to_a_multiple_of_the_period(rounding: dict[str, Any]) -> None:
    period = milliseconds(rounding["period"])
    every = every_for(milliseconds(rounding["asked"]), period)
    assert every * rounding["period"] == rounding["granted"]


@pytest.mark.feature("S3-5")
def test_35_ms_of_a_10_ms_variable_keeps_what_30_ms_keeps() -> None:
    period = milliseconds(10)
    asked, granted = (every_for(milliseconds(interval), period) for interval in (35, 30))
    stamps_ns = [slot * 10 * NS_PER_MS for slot in range(1_000)]
    kept = [created_ns for created_ns in stamps_ns if is_due(created_ns, period, asked)]
    assert kept == [created_ns for created_ns in stamps_ns if is_due(created_ns, period, granted)]
    assert kept[:4] == [0, 30 * NS_PER_MS, 60 * NS_PER_MS, 90 * NS_PER_MS]


@given(periods, periods)
def test_a_rounded_interval_is_never_longer_than_asked(interval: Period, period: Period) -> None:
    assume(interval.period_ns >= period.period_ns)
    every = every_for(interval, period)
    assert every * period.period_ns <= interval.period_ns
    assert every == EVERY_MAX or (every + 1) * period.period_ns > interval.period_ns


def test_an_interval_beyond_the_largest_divisor_is_rounded_down_to_it() -> None:
    assert every_for(Period(PERIOD_PART_MAX, 1), Period(1, PERIOD_PART_MAX)) == EVERY_MAX


def test_an_interval_below_the_period_is_refused_with_a_hint() -> None:
    with pytest.raises(IntervalNotSatisfiable, match=r"every 1/200 s .* every 1/100 s") as refusal:
        every_for(Period(1, 200), Period(1, 100))
    assert refusal.value.hint


def test_fifteen_a_second_of_thirty_is_every_second_slot_exactly() -> None:
    assert every_for(Period(1, 15), Period(1, 30)) == 2


def test_a_rounded_period_would_have_drifted_and_the_exact_one_has_not() -> None:
    slot = 30 * 60 * 60 * 24 * 365
    created_ns = slot // 30 * NS_PER_S
    assert slot_of(created_ns, Period(1, 30)) == slot
    assert slot_of(created_ns, Period(33_333_333, NS_PER_S)) != slot


def test_a_stamp_before_the_phase_counts_backwards() -> None:
    period = Period(1, 1)
    assert slot_of(0, period, phase_ns=10 * NS_PER_S) == -10
    assert is_due(0, period, 5, phase_ns=10 * NS_PER_S)
    assert not is_due(0, period, 4, phase_ns=10 * NS_PER_S)


def test_a_slot_beyond_64_bits_is_held_at_the_bound() -> None:
    finest = Period(1, PERIOD_PART_MAX)
    assert slot_of(2**64 - 1, finest) == SLOT_MAX
    assert slot_of(0, finest, phase_ns=2**64 - 1) == SLOT_MIN


@given(st.integers(1, 2**16), st.integers(1, 2**16), st.integers(1, 2**16))
def test_periods_are_equal_by_value_and_kept_in_lowest_terms(
    seconds: int, per_seconds: int, factor: int
) -> None:
    period = Period(seconds, per_seconds)
    scaled = Period(seconds * (factor % 2**15 + 1), per_seconds * (factor % 2**15 + 1))
    assert scaled == period
    assert hash(scaled) == hash(period)
    assert Fraction(period.seconds, period.per_seconds) == Fraction(seconds, per_seconds)
    assert period.period_ns == Fraction(seconds * NS_PER_S, per_seconds)


@pytest.mark.parametrize("bad", [0, -1, PERIOD_PART_MAX + 1, 0.5, True, "1"])
def test_a_period_that_is_not_two_whole_32_bit_numbers_is_refused(bad: Any) -> None:
    with pytest.raises(InvalidPeriod, match=r"from 1 to 4294967295") as refusal:
        Period(bad, 1)
    with pytest.raises(InvalidPeriod):
        Period(1, bad)
    assert "Period(1001, 30_000)" in refusal.value.hint
