"""The core's copy of the rate law against the law itself, to the ends of the clock."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core import _core
from gridstat.model.rate_law import PERIOD_PART_MAX, Period, is_due, slot_of

U64_MAX = 2**64 - 1

parts = st.one_of(
    st.sampled_from([1, 2, 30, 50, 60, 120, 1_000, 1_001, 30_000, 10**6, 10**9, PERIOD_PART_MAX]),
    st.integers(1, PERIOD_PART_MAX),
)
periods = st.builds(Period, parts, parts)
instants = st.one_of(
    st.integers(0, U64_MAX),
    st.integers(1_600_000_000 * 10**9, 4_200_000_000 * 10**9),
    st.sampled_from([0, 1, 2**63 - 1, 2**63, U64_MAX - 1, U64_MAX]),
)
divisors = st.one_of(st.integers(1, 100), st.integers(1, 2**32 - 1))


@given(created_ns=instants, period=periods, phase_ns=st.just(0) | instants)
def test_the_core_counts_slots_as_the_law_does(
    created_ns: int, period: Period, phase_ns: int
) -> None:
    counted = _core.slot_of(created_ns, period.seconds, period.per_seconds, phase_ns)
    assert counted == slot_of(created_ns, period, phase_ns)


@given(created_ns=instants, period=periods, phase_ns=st.just(0) | instants, every=divisors)
def test_the_core_filters_as_the_law_does(
    created_ns: int, period: Period, phase_ns: int, every: int
) -> None:
    filtered = _core.is_due(created_ns, period.seconds, period.per_seconds, phase_ns, every)
    assert filtered == is_due(created_ns, period, every, phase_ns)


@given(
    slot=st.integers(0, 10**9),
    rate=st.builds(Period, st.integers(1, 18), st.integers(1, 10**6)),
    phase_ns=st.integers(0, 10**10),
    every=st.integers(1, 1_000),
    skew=st.floats(-0.499, 0.499),
)
def test_a_stamp_within_half_a_period_of_slot_k_is_kept_iff_k_is_a_multiple(
    slot: int, rate: Period, phase_ns: int, every: int, skew: float
) -> None:
    nominal_ns = phase_ns + slot * rate.period_ns
    created_ns = round(nominal_ns + int(skew * float(rate.period_ns)))
    if created_ns < 0:
        created_ns = round(nominal_ns)
    kept = _core.is_due(created_ns, rate.seconds, rate.per_seconds, phase_ns, every)
    assert kept == (slot % every == 0)


@pytest.mark.parametrize("seconds", [1, 2**32 - 1])
@pytest.mark.parametrize("per_seconds", [1, 2**32 - 1])
@pytest.mark.parametrize("created_ns", [0, 1, 2**63, U64_MAX])
@pytest.mark.parametrize("phase_ns", [0, 1, 2**63, U64_MAX])
def test_the_law_holds_at_every_corner(
    seconds: int, per_seconds: int, created_ns: int, phase_ns: int
) -> None:
    period = Period(seconds, per_seconds)
    counted = _core.slot_of(created_ns, seconds, per_seconds, phase_ns)
    assert counted == slot_of(created_ns, period, phase_ns)
