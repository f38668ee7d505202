"""Cost of a reservation: bytes, rates, exact sums, and totals over the modes."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.capacity.charges import (
    Amount,
    DivisorCounts,
    ExactSum,
    ModalSum,
    event_bytes,
    event_rate,
    shares_of,
)
from gridstat.model.errors import IntervalNotSatisfiable
from gridstat.model.identifiers import ChannelId, VariableId
from gridstat.model.rate_law import CHANNEL_DIVISORS_MAX, Period, union_rate
from gridstat.model.status import BuiltinType, Field, FieldKind, RecordType, StatusVariable
from gridstat.model.wire_law import wire_bytes
from gridstat.router.forwarding_table import terms
from gridstat.router.path_table import Path
from tests.unit.broker.clouds import variable

if TYPE_CHECKING:
    from collections.abc import Mapping

HYPER = 120
"""A number of slots after which the pattern of all small divisors repeats."""
COMMON = 55_440
"""A number of slots after which the pattern of all its 120 divisors repeats."""
SMALL = st.sampled_from([1, 2, 3, 4, 5, 6, 8, 10, 12])
TAKEN = st.dictionaries(
    st.integers(0, 4), st.lists(SMALL, min_size=1, max_size=4), min_size=1, max_size=4
)


def blob(length_bytes: int) -> StatusVariable:
    record = RecordType("blob", (Field("bytes", FieldKind.BYTES, length_bytes),))
    return StatusVariable(VariableId(9), "c1/pmu/blob", record, Period(1, 30))


def counted(taken: Mapping[int, list[int]]) -> DivisorCounts:
    counts = DivisorCounts()
    for mode, divisors in taken.items():
        for every in divisors:
            counts.add({mode: every})
    return counts


def test_an_event_is_charged_as_if_alone_in_its_datagram() -> None:
    assert event_bytes(variable(), 1_232) == 28 + 16 + 24


def test_options_are_charged_by_24_bytes() -> None:
    assert event_bytes(blob(8 + 25), 1_232) == 28 + 16 + 24 + 2 * 24


def test_an_event_beyond_the_mtu_is_charged_per_fragment() -> None:
    # 16 + 24 + 24 · 83 = 2,032 bytes do not fit in 1,232 and travel in two pieces.
    assert event_bytes(blob(2_000), 1_232) == 2_032 + 2 * 28


def test_a_datagram_that_just_fits_is_one_piece() -> None:
    assert event_bytes(variable(), 40) == 40 + 28
    assert event_bytes(variable(), 39) == 40 + 2 * 28


@given(st.integers(0, 6_128), st.integers(64, 9_000))
def test_an_event_is_charged_all_that_the_line_carries(length_bytes: int, mtu_bytes: int) -> None:
    large = blob(max(1, length_bytes))
    datagram_bytes = 16 + 24 + 24 * large.option_count
    charged = event_bytes(large, mtu_bytes, is_ipv6=True)
    assert charged == wire_bytes(datagram_bytes, mtu_bytes, is_ipv6=True)
    by_ipv4 = event_bytes(large, mtu_bytes)
    assert by_ipv4 >= wire_bytes(datagram_bytes, mtu_bytes, is_ipv6=False)


def test_an_event_by_ipv6_is_charged_twenty_bytes_more() -> None:
    assert event_bytes(variable(), 1_232, is_ipv6=True) == event_bytes(variable(), 1_232) + 20


def test_a_periodic_variable_comes_as_often_as_its_period_says() -> None:
    odd = StatusVariable(VariableId(1), "c1/v", BuiltinType.BOOL, Period(1_001, 30_000))
    assert event_rate(odd) == Fraction(30_000, 1_001)


def test_an_alert_is_charged_by_its_minimum_interval() -> None:
    alert = StatusVariable(
        VariableId(1), "c1/a", BuiltinType.BOOL, None, is_alert=True, interval_ns_min=3_000_000
    )
    assert event_rate(alert) == Fraction(1_000, 3)


def test_an_aperiodic_variable_without_a_bound_cannot_be_charged() -> None:
    unbounded = StatusVariable(VariableId(1), "c1/a", BuiltinType.BOOL, None)
    with pytest.raises(IntervalNotSatisfiable) as caught:
        event_rate(unbounded)
    assert "interval_ns_min" in caught.value.hint


@pytest.mark.feature("S0-137")
@given(TAKEN)
def test_charged_shares_are_those_that_the_routers_tables_let_through(
    taken: dict[int, list[int]],
) -> None:
    shares = shares_of(counted(taken).taken())
    paths = [
        Path(VariableId(1), ChannelId(1), every, modes=1 << mode)
        for mode, divisors in taken.items()
        for every in divisors
    ]
    rows = terms(paths)
    for mode in range(5):
        active = 1 | 1 << mode
        sent = sum(
            any(term.modes & active and slot % term.every == 0 for term in rows)
            for slot in range(HYPER)
        )
        charged = shares.get(0, Fraction(0)) + (shares.get(mode, Fraction(0)) if mode else 0)
        assert charged == Fraction(sent, HYPER)


@given(
    st.sets(st.sampled_from([every for every in range(2, 600) if COMMON % every == 0])),
    st.sets(st.sampled_from([every for every in range(2, 600) if COMMON % every == 0])),
)
def test_more_divisors_than_a_table_holds_are_never_charged_below_what_is_asked(
    always: set[int], in_mode: set[int]
) -> None:
    due = np.zeros(COMMON, dtype=bool)
    for every in always | in_mode:
        due[::every] = True
    taken = {mode: sorted(asked) for mode, asked in ((0, always), (1, in_mode)) if asked}
    charged = sum(shares_of(counted(taken).taken()).values(), Fraction(0))
    asked = Fraction(int(due.sum()), COMMON)
    assert charged >= asked
    if len(always | in_mode) <= CHANNEL_DIVISORS_MAX:
        assert charged == asked


def test_very_many_divisors_are_charged_by_their_common_one() -> None:
    many = list(range(100, 400))
    taken = counted({0: [6 * every for every in many], 1: many})
    assert shares_of(taken.taken()) == {0: Fraction(1, 6), 1: Fraction(5, 6)}


def test_what_many_modes_round_down_on_a_channel_is_charged_as_the_routers_forward_it() -> None:
    odd = [number for number in range(101, 1_000) if all(number % n for n in (2, 3, 5, 7, 11))]
    taken = {
        mode: [12 * every for every in odd[12 * mode - 12 : 12 * mode]] for mode in range(1, 9)
    }
    found = terms(
        Path(VariableId(1), ChannelId(1), every, modes=1 << mode)
        for mode, divisors in taken.items()
        for every in divisors
    )
    assert len({term.every for term in found}) <= 64
    for mode, share in shares_of(counted(taken).taken()).items():
        assert share == union_rate(term.every for term in found if term.modes >> mode & 1)


@given(TAKEN)
def test_divisors_taken_back_leave_nothing(taken: dict[int, list[int]]) -> None:
    counts = counted(taken)
    for mode, divisors in taken.items():
        for every in divisors:
            counts.remove({mode: every})
    assert not counts
    assert counts.taken() == ()


def test_only_the_first_and_the_last_of_equal_divisors_matter() -> None:
    counts = DivisorCounts()
    assert [counts.add({0: 2}), counts.add({0: 2})] == [True, False]
    assert [counts.remove({0: 2}), counts.remove({0: 2})] == [False, True]


def test_a_multiple_of_a_taken_divisor_adds_nothing() -> None:
    counts = counted({0: [2], 3: [5]})
    assert counts.serves({0: 4})
    assert counts.serves({3: 10})
    assert not counts.serves({0: 5})
    assert not counts.serves({2: 5})


@given(st.lists(st.fractions(min_value=Fraction(1, 1_000), max_value=1_000), max_size=30))
def test_an_exact_sum_is_exact_and_its_ceiling_close_above(parts: list[Fraction]) -> None:
    total = ExactSum()
    for part in parts:
        total.add(Amount(part))
    assert total.value == sum(parts, Fraction(0))
    assert 0 <= Fraction(total.ceiling, 2**64) - total.value <= Fraction(len(parts), 2**64)
    for part in parts:
        total.remove(Amount(part))
    assert not total.numerators
    assert total.value == 0
    assert total.ceiling == 0


def test_a_sum_at_the_very_limit_does_not_exceed_it() -> None:
    total = ModalSum()
    for _ in range(3):
        total.replace(0, None, Amount(Fraction(1, 3)))
    assert not total.exceeds(1)
    total.replace(0, None, Amount(Fraction(1, 10**30)))
    assert total.exceeds(1)


def test_a_total_is_the_baseline_and_the_worst_mode_of_each_set() -> None:
    total = ModalSum((frozenset({1, 2}), frozenset({3, 4})))
    for mode, amount in ((0, 100), (1, 10), (2, 30), (3, 7), (4, 5)):
        total.replace(mode, None, Amount(Fraction(amount)))
    assert total.value == 100 + 30 + 7
    assert total.exceeds(136)
    assert not total.exceeds(137)
