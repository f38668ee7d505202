"""Sparse streams through a core: what the law of sparse streams carries is carried whole."""

from __future__ import annotations

import random
from itertools import combinations
from typing import TYPE_CHECKING

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.rate_law import Period
from gridstat.model.sparse_law import WINDOW_MS_MIN, carried_every
from gridstat.model.window_law import window_slots
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    datagram,
    event,
    periodic,
    told,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.protocol.grids import Subject

SLOTS = 50_000
FIRST = -(-NOW_NS // MS)
DIVISORS = (256, 257, 300, 999, 1_000, 1_024, 1_999, 2_000, 2_001, 2_500, 5_000, 12_345)


class Sparse:
    """A variable of a thousand events a second, and a channel for each divisor."""

    def __init__(self, subject: MakeCore, divisors: Sequence[int]) -> None:
        self.core: Subject = subject(SMALL)
        self.divisors = divisors
        self.random = random.Random(repr(divisors))
        self.core.open_source(PUBLISHER, is_publisher=False)
        for number in range(1, len(divisors) + 1):
            self.core.open_channel(ChannelSpec(number))
        self.carry(divisors)

    def carry(self, divisors: Sequence[int]) -> None:
        routes = tuple(Route(at, (Term(every),)) for at, every in enumerate(divisors, 1))
        self.core.commit([periodic(1, 1, is_stamp_exempt=True, routes=routes)])

    def bring(self, slots: range, *, without: int = 0) -> None:
        """All slots of which one divisor is due, each with a delay of its own, in order."""
        came_ns = 0
        for slot in slots:
            if slot == without or not any(slot % every == 0 for every in self.divisors):
                continue
            delay_ns = self.random.randrange(WINDOW_MS_MIN * MS)
            came_ns = max(came_ns + 1, slot * MS + delay_ns)
            self.core.inject(datagram(PUBLISHER, event(1, slot * MS)), now_ns=came_ns)

    def passed(self, channel_id: int = 1) -> list[int]:
        return [created_ns // MS for _, created_ns in told(self.core.take_output(channel_id))]


def due(every: int, slots: range) -> list[int]:
    return [slot for slot in slots if slot % every == 0]


@pytest.mark.parametrize("asked", [255, *DIVISORS])
def test_a_divisor_that_is_carried_loses_no_event(subject: MakeCore, asked: int) -> None:
    every = carried_every(asked, Period(1, 1_000))
    stream, slots = Sparse(subject, (every,)), range(FIRST, FIRST + SLOTS)
    stream.bring(slots)
    assert stream.passed() == due(every, slots)


@pytest.mark.parametrize("pair", [*combinations(DIVISORS, 2)], ids=str)
def test_two_that_are_carried_and_meet_in_a_core_lose_no_event(
    subject: MakeCore, pair: tuple[int, int]
) -> None:
    stream, slots = Sparse(subject, pair), range(FIRST, FIRST + SLOTS)
    stream.bring(slots)
    for channel_id, every in enumerate(pair, 1):
        assert stream.passed(channel_id) == due(every, slots)


@pytest.mark.parametrize("gap", [256, 300, 600, 999])
def test_a_sparse_one_loses_nothing_when_a_dense_one_leaves(subject: MakeCore, gap: int) -> None:
    every = 5_000
    next_due = -(-FIRST // every) * every + every
    stream = Sparse(subject, (every, 3))
    stream.bring(range(FIRST, next_due - gap))
    assert stream.passed()
    stream.divisors = (every,)
    stream.carry(stream.divisors)
    stream.bring(range(next_due - gap, next_due + 1))
    assert stream.passed() == [next_due]


@pytest.mark.parametrize("every", [128, 200, 255, 400])
def test_one_lost_event_takes_no_other_with_it(subject: MakeCore, every: int) -> None:
    stream, slots = Sparse(subject, (every,)), range(FIRST, FIRST + 20 * every)
    lost = due(every, slots)[10]
    stream.bring(slots, without=lost)
    assert stream.passed() == [slot for slot in due(every, slots) if slot != lost]


@pytest.mark.parametrize("ahead", [256, 400, 455])
def test_one_forged_stamp_that_is_not_told_from_a_sparse_one_costs_no_true_event(
    subject: MakeCore, ahead: int
) -> None:
    stream = Sparse(subject, (1,))
    stream.bring(range(FIRST, FIRST + 1))
    forged, true = FIRST + ahead, range(FIRST + 201, FIRST + 1_000)
    now_ns = (FIRST + 200 + WINDOW_MS_MIN) * MS
    stream.core.inject(datagram(PUBLISHER, event(1, forged * MS)), now_ns=now_ns)
    assert stream.passed() == [FIRST, forged]
    for slot in true:
        octets = datagram(PUBLISHER, event(1, slot * MS))
        stream.core.inject(octets, now_ns=(slot + WINDOW_MS_MIN) * MS)
    assert stream.passed() == [slot for slot in true if slot != forged]


def test_a_stamp_too_early_by_the_window_is_still_policed(subject: MakeCore) -> None:
    stream = Sparse(subject, (1,))
    stream.bring(range(FIRST, FIRST + 1))
    assert stream.passed() == [FIRST]
    beyond = FIRST + 200 + window_slots(Period(1, 1_000)) + WINDOW_MS_MIN
    forged = datagram(PUBLISHER, event(1, beyond * MS))
    stream.core.inject(forged, now_ns=(FIRST + 200) * MS)
    assert stream.passed() == []
    assert stream.core.counters()["policed_jump"] == 1
