"""Channels by which the copies of a variable came to an edge. Two subjects: core and reference."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from gridstat.model.copy_window import COPY_PATHS, COPY_SLOTS
from gridstat.model.errors import LayoutError
from gridstat.model.rate_law import Period
from gridstat.model.window_law import window_slots
from tests.protocol.grids import (
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    aperiodic,
    assert_reconciled,
    datagram,
    event,
    periodic,
)

COUNTED = periodic(
    1, 10, source=PUBLISHER, routes=(Route(1, (Term(1),)),), keeps_newest=True, counted_every=1
)
EAST, WEST, NORTH = 21, 22, 23
JUDGED_AFTER = 102
"""Number of newest slots left open: a second's worth at a hundred a second, and two."""


def edge(make_core: MakeCore, *channel_ids: int) -> Subject:
    core = make_core(SMALL)
    core.open_channel(ChannelSpec(1))
    core.open_source(PUBLISHER, is_publisher=True)
    for channel_id in channel_ids or (EAST, WEST):
        core.open_source(channel_id)
    core.commit([COUNTED])
    return core


def bring(core: Subject, slots: range, *channel_ids: int) -> None:
    for slot in slots:
        now_ns = NOW_NS + slot * 10 * MS
        for channel_id in channel_ids:
            core.inject(datagram(channel_id, event(1, now_ns)), now_ns=now_ns)


def missed(core: Subject) -> dict[int, int]:
    told = core.copies(1)
    assert told is not None
    ways = zip(told["channel_ids"][: told["path_count"]], told["came"], strict=False)
    return {channel_id: told["passed"] - came for channel_id, came in ways}


def test_the_channel_that_loses_is_named(subject: MakeCore) -> None:
    core = edge(subject)
    bring(core, range(100), EAST, WEST)
    bring(core, range(100, 140), EAST)
    bring(core, range(140, 140 + JUDGED_AFTER), WEST, EAST)
    assert missed(core) == {EAST: 0, WEST: 40}
    assert core.counters()["dispatched"] == 140 + JUDGED_AFTER
    assert_reconciled(core)


def test_the_newest_slots_are_not_judged_while_copies_may_be_under_way(subject: MakeCore) -> None:
    core = edge(subject)
    bring(core, range(10), EAST, WEST)
    bring(core, range(10, 10 + JUDGED_AFTER), EAST)
    assert missed(core) == {EAST: 0, WEST: 0}
    bring(core, range(10 + JUDGED_AFTER, 11 + JUDGED_AFTER), EAST)
    assert missed(core) == {EAST: 0, WEST: 1}


def test_the_publishers_own_channel_is_known_as_0(subject: MakeCore) -> None:
    core = edge(subject)
    bring(core, range(10), PUBLISHER)
    bring(core, range(10, 10 + JUDGED_AFTER), PUBLISHER, WEST)
    assert missed(core) == {0: 0, WEST: 10}


def test_only_every_counted_slot_counts(subject: MakeCore) -> None:
    core = edge(subject)
    core.commit([replace(COUNTED, counted_every=10)])
    bring(core, range(100), EAST)
    bring(core, range(100, 300), EAST, WEST)
    told = core.copies(1)
    assert told is not None
    assert (told["every"], missed(core)) == (10, {EAST: 0, WEST: 10})
    assert told["first"][:2] == [30, 0]


def test_counts_stay_through_a_change_of_routes_and_begin_anew_with_other_slots(
    subject: MakeCore,
) -> None:
    core = edge(subject)
    bring(core, range(50), EAST)
    bring(core, range(50, 200), EAST, WEST)
    core.open_channel(ChannelSpec(2))
    more = replace(COUNTED, routes=(*COUNTED.routes, Route(2, (Term(5),))))
    core.commit([more])
    assert missed(core) == {EAST: 0, WEST: 50}
    core.commit([replace(more, counted_every=5)])
    told = core.copies(1)
    assert told is not None
    assert (told["path_count"], told["passed"]) == (0, 0)
    core.commit([replace(more, counted_every=0)])
    assert core.copies(1) is None


def test_a_channel_that_is_gone_makes_room_for_a_new_one(subject: MakeCore) -> None:
    many = tuple(range(31, 31 + COPY_PATHS))
    core = edge(subject, *many, NORTH)
    for at, channel_id in enumerate(many):
        bring(core, range(at, at + 1), channel_id)
    bring(core, range(10, 20), many[1], NORTH)
    assert NORTH not in missed(core)
    bring(core, range(20, 20 + 2 * COPY_SLOTS), *many[1:])
    bring(core, range(600, 610), *many[1:], NORTH)
    assert set(missed(core)) == {*many[1:], NORTH}


@pytest.mark.parametrize("row", [periodic(1, 10), aperiodic(1, counted_every=3)])
def test_without_slots_or_an_order_nothing_is_counted(subject: MakeCore, row: object) -> None:
    core = edge(subject)
    core.commit([row])  # type: ignore[list-item]
    bring(core, range(10), EAST, WEST)
    assert core.copies(1) is None
    assert core.copies(77) is None


def test_an_order_out_of_range_is_refused(subject: MakeCore) -> None:
    with pytest.raises(LayoutError, match="counted_every"):
        edge(subject).commit([replace(COUNTED, counted_every=-1)])


@pytest.mark.parametrize("difference_ms", [80, 300, 500])
def test_a_path_that_is_slower_by_less_than_the_window_is_not_a_lossy_one(
    subject: MakeCore, difference_ms: int
) -> None:
    core = edge(subject)
    core.commit([replace(COUNTED, period=Period(1, 4_000))])
    behind = 4 * difference_ms
    for slot in range(8_000):
        now_ns = NOW_NS + slot * MS // 4
        for channel_id, brought in ((EAST, slot), (WEST, slot - behind)):
            octets = datagram(channel_id, event(1, NOW_NS + brought * MS // 4))
            if brought >= 0:
                core.inject(octets, now_ns=now_ns)
        core.take_output(1)
    told = core.copies(1)
    assert told is not None
    assert told["passed"] > 100
    assert missed(core) == {EAST: 0, WEST: 0}


def test_a_path_whose_copies_are_all_too_old_has_brought_nothing(subject: MakeCore) -> None:
    core = edge(subject)
    behind = window_slots(Period(1, 100)) + 5
    bring(core, range(5), EAST, WEST)
    for slot in range(5, 3 * behind):
        bring(core, range(slot, slot + 1), EAST)
        if slot >= behind:
            now_ns = NOW_NS + slot * 10 * MS
            octets = datagram(WEST, event(1, now_ns - behind * 10 * MS))
            core.inject(octets, now_ns=now_ns)
    told = core.copies(1)
    assert told is not None
    assert missed(core) == {EAST: 0, WEST: told["passed"] - 5}
    assert core.counters()["too_old"] == 2 * behind
    assert_reconciled(core)
