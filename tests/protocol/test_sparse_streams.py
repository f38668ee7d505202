"""Sparse streams through a core: what the law of sparse streams carries is carried whole."""

from __future__ import annotations

import random

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.rate_law import Period
from gridstat.model.sparse_law import carried_every
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

JITTER_MS = 20
EVENTS = 40


def passed(subject: MakeCore, every: int) -> int:
    """How many of 40 events of a variable of a thousand a second pass, this many slots apart."""
    core = subject(SMALL)
    core.open_source(PUBLISHER, is_publisher=False)
    core.open_channel(ChannelSpec(1))
    routes = (Route(1, (Term(every),)),)
    core.commit([periodic(1, 1, is_stamp_exempt=True, routes=routes)])
    random_ = random.Random(every)
    first = -(-NOW_NS // MS // every)
    count = 0
    for slot in range(first, first + EVENTS):
        created_ns = slot * every * MS
        arrived_ns = created_ns + random_.randrange(JITTER_MS * MS)
        core.inject(datagram(PUBLISHER, event(1, created_ns)), now_ns=arrived_ns)
        count += len(told(core.take_output(1)))
    return count


@pytest.mark.parametrize("asked", [255, 256, 500, 1_000, 1_024, 1_500, 2_000, 5_000])
def test_a_divisor_that_is_carried_loses_no_event(subject: MakeCore, asked: int) -> None:
    assert passed(subject, carried_every(asked, Period(1, 1_000))) == EVENTS


@pytest.mark.parametrize("asked", [256, 500, 999, 1_000])
def test_one_that_is_not_would_lose_many_of_them(subject: MakeCore, asked: int) -> None:
    assert passed(subject, asked) < EVENTS
