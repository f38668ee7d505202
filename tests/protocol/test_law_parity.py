"""The core's copy of the rate law against the law itself, to the ends of the clock."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core import _core
from gridstat.model.rate_law import (
    EVERY_MAX,
    PERIOD_PART_MAX,
    SLOT_MAX,
    SLOT_MIN,
    Period,
    is_due,
    slot_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

U64_MAX = 2**64 - 1
NANOSECOND = Period(1, 10**9)
"""Period at which a slot is exactly the difference of stamp and phase."""

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
divisors = st.one_of(
    st.integers(1, 100),
    st.integers(0, 31).map(lambda shift: 1 << shift),
    st.integers(1, EVERY_MAX),
    st.sampled_from([2**31, 2**31 - 1, 2**31 + 1, EVERY_MAX - 1, EVERY_MAX]),
)


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


@given(
    slot=st.integers(-(10**6), 10**9),
    rate=st.sampled_from([Period(1, 1), Period(2, 1), Period(1, 10), Period(1, 50), Period(3, 25)]),
)
def test_the_upper_edge_of_a_slot_belongs_to_the_next_one_in_the_core_too(
    slot: int, rate: Period
) -> None:
    phase_ns = 10**16
    edge_ns = phase_ns + (2 * slot + 1) * rate.period_ns / 2
    assert edge_ns.denominator == 1, "stamps that lie on an edge exactly"
    for created_ns, expected in ((int(edge_ns) - 1, slot), (int(edge_ns), slot + 1)):
        counted = _core.slot_of(created_ns, rate.seconds, rate.per_seconds, phase_ns)
        assert counted == expected == slot_of(created_ns, rate, phase_ns)


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


def slots_around(every: int, rng: random.Random) -> Iterator[int]:
    """Multiples of the divisor and their neighbours: near 0, anywhere, and at both bounds."""
    multiples = [0, every, -every, 2 * every, -3 * every, every * every, -every * every]
    multiples += [rng.randint(SLOT_MIN, SLOT_MAX) // every * every for _ in range(6)]
    multiples += [SLOT_MAX // every * every, -(-SLOT_MIN // every * every)]
    for multiple in multiples:
        yield from (multiple - 1, multiple, multiple + 1)
    yield from (SLOT_MIN, SLOT_MIN + 1, SLOT_MAX - 1, SLOT_MAX)


def assert_core_filters_by(every: int, rng: random.Random) -> None:
    """Check the core's filter at many slots; negative ones have a phase later than the stamp."""
    for slot in slots_around(every, rng):
        if not SLOT_MIN <= slot <= SLOT_MAX:
            continue
        phase_ns = rng.randint(max(0, -slot), min(U64_MAX, U64_MAX - slot))
        kept = _core.is_due(phase_ns + slot, 1, 10**9, phase_ns, every)
        assert kept == (slot % every == 0), f"slot {slot}, every {every}-th"


def special_divisors() -> set[int]:
    """Every power of two and its neighbours, their triples, and all small numbers."""
    powers = {1 << shift for shift in range(33)}
    near = {power + apart for power in powers for apart in (-1, 0, 1)}
    near |= {3 * power for power in powers} | set(range(1, 200))
    return {every for every in near if 1 <= every <= EVERY_MAX}


def test_the_cores_test_without_division_holds_for_every_special_divisor() -> None:
    rng = random.Random(1)
    assert {1, 2, 2**31, EVERY_MAX} <= special_divisors()
    for every in sorted(special_divisors()):
        assert_core_filters_by(every, rng)


@pytest.mark.parametrize("seed", range(4))
def test_the_cores_test_without_division_holds_for_random_divisors_of_every_size(
    seed: int,
) -> None:
    rng = random.Random(seed)
    for _ in range(1_000):
        every = rng.getrandbits(rng.randint(1, 32)) or 1
        assert_core_filters_by(every, rng)
        assert_core_filters_by(min(every << rng.randrange(32), 1 << 31), rng)


def test_a_slot_is_the_difference_of_stamp_and_phase_at_one_a_nanosecond() -> None:
    """Check the assumption of the tests above."""
    rng = random.Random(2)
    for slot in slots_around(EVERY_MAX, rng):
        phase_ns = rng.randint(max(0, -slot), min(U64_MAX, U64_MAX - slot))
        held = max(SLOT_MIN, min(SLOT_MAX, slot))
        assert slot_of(phase_ns + slot, NANOSECOND, phase_ns) == held
        assert _core.slot_of(phase_ns + slot, 1, 10**9, phase_ns) == held
