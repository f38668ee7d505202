"""Windows last long enough at every rate, and the C core chooses the same lengths."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gridstat.core._core import Core
from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.model.rate_law import Period
from gridstat.model.window_law import (
    EARLY_SLOTS,
    WINDOW_LENGTHS,
    WINDOW_MS,
    latency_us_recognised,
    window_slots,
)
from tests.protocol.grids import NOW_NS, SMALL, datagram, event

US_PER_S = 1_000_000


@pytest.mark.parametrize(
    ("period", "slots"),
    [
        (Period(1, 1), 256),
        (Period(1, 320), 256),
        (Period(1, 321), 960),
        (Period(1, 1_200), 960),
        (Period(1, 1_201), 4_032),
        (Period(1, 4_000), 4_032),
        (Period(1, 5_040), 4_032),
        (Period(1, 1_000_000), 4_032),
        (Period(1_001, 30_000), 256),
        (Period(1_001, 321_321), 960),
        (Period(1_001, 320_320), 256),
    ],
    ids=str,
)
def test_the_window_is_the_shortest_that_lasts_in_law_and_core(period: Period, slots: int) -> None:
    assert window_slots(period) == slots
    core = Core(SMALL)
    core.open_source(1)
    core.open_channel(ChannelSpec(1))
    core.commit([Row(7, period, routes=(Route(1, (Term(1),)),))])
    for back in (0, slots - 1, slots):
        stamp_ns = NOW_NS - back * period.seconds * 1_000_000_000 // period.per_seconds
        core.inject(datagram(1, event(7, stamp_ns)), now_ns=NOW_NS)
    counters = core.counters()
    assert (counters["dispatched"], counters["too_old"]) == (2, 1)


@pytest.mark.parametrize("rate", [1, 30, 120, 320, 1_000, 4_000, 5_040])
def test_up_to_5040_slots_a_second_three_quarters_of_a_second_but_a_margin_are_recognised(
    rate: int,
) -> None:
    bound_us = latency_us_recognised(window_slots(Period(1, rate)), Fraction(rate))
    assert bound_us >= (WINDOW_MS - 60) * 1_000


@pytest.mark.parametrize("rate", [30, 4_000, 20_000, 1_000_000])
def test_a_copy_at_the_bound_is_behind_by_less_than_the_window(rate: int) -> None:
    slots = window_slots(Period(1, rate))
    bound_us = latency_us_recognised(slots, Fraction(rate))
    assert 0 < bound_us * rate < (slots - EARLY_SLOTS) * US_PER_S


def test_windows_of_every_length_but_the_first_are_rings_of_words_of_a_power_of_two() -> None:
    words = [slots // 64 + 1 for slots in WINDOW_LENGTHS[1:]]
    assert all(count & (count - 1) == 0 for count in words)
