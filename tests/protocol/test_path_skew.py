"""Copies by a slow path fill the gaps of a fast one, at every rate and whatever the difference."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.model.rate_law import Period
from gridstat.model.window_law import latency_us_recognised, window_slots
from tests.protocol.grids import MS, NOW_NS, SMALL, MakeCore, Subject, datagram, event, told

FAST, SLOW = 50, 51
RATES = (30, 60, 120, 320, 321, 1_000, 1_200, 1_201, 4_000)
DIFFERENCES_MS = (0, 20, 80, 150, 300, 500)
LOSS = 0.05
LASTS_MS = 1_500


class Merge:
    """A core in which two paths of one variable meet."""

    def __init__(self, make_core: MakeCore, period: Period) -> None:
        self.core: Subject = make_core(SMALL)
        for channel_id in (FAST, SLOW):
            self.core.open_source(channel_id)
        self.core.open_channel(ChannelSpec(1))
        self.core.commit([Row(1, period, routes=(Route(1, (Term(1),)),))])

    def offer(self, channel_id: int, created_ns: int, now_ns: int) -> None:
        self.core.inject(datagram(channel_id, event(1, created_ns)), now_ns=now_ns)

    def passed(self) -> list[int]:
        return [created_ns for _, created_ns in told(self.core.take_output(1))]


@pytest.mark.parametrize("difference_ms", DIFFERENCES_MS)
@pytest.mark.parametrize("rate", RATES)
def test_no_event_that_the_fast_path_loses_is_missing(
    subject: MakeCore, rate: int, difference_ms: int
) -> None:
    period = Period(1, rate)
    bound_us = latency_us_recognised(window_slots(period), Fraction(rate))
    assert difference_ms * 1_000 < bound_us, "admission grants each of these cells"
    merge, rng = Merge(subject, period), random.Random(rate + difference_ms)
    created = [NOW_NS + number * 1_000 * MS // rate for number in range(rate * LASTS_MS // 1_000)]
    copies = []
    for created_ns in created:
        if rng.random() >= LOSS:
            copies.append((created_ns + rng.randrange(2 * MS), FAST, created_ns))
        slow_ns = created_ns + difference_ms * MS + rng.randrange(20 * MS)
        copies.append((slow_ns, SLOW, created_ns))
    for now_ns, channel_id, created_ns in sorted(copies):
        merge.offer(channel_id, created_ns, now_ns)
    assert sorted(merge.passed()) == created
    assert merge.core.counters()["too_old"] == 0


@pytest.mark.parametrize("rate", [30, 1_000, 4_000])
def test_copies_behind_the_window_have_their_own_counter(subject: MakeCore, rate: int) -> None:
    period = Period(1, rate)
    length = window_slots(period)
    merge = Merge(subject, period)
    step_ns = 1_000 * MS // rate
    for number in range(length + 10):
        merge.offer(FAST, NOW_NS + number * step_ns, NOW_NS + number * step_ns)
    now_ns = NOW_NS + (length + 10) * step_ns
    for number in range(20):
        merge.offer(SLOW, NOW_NS + number * step_ns, now_ns)
    counters = merge.core.counters()
    assert (counters["too_old"], counters["duplicate"]) == (10, 10)
    assert counters["in"] == length + 30
