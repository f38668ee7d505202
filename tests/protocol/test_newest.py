"""The newest event of each variable, kept by the core for late subscribers. Two subjects."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gridstat.core.rows import ChannelSpec, Route, Row, Term
from gridstat.model.errors import LayoutError
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

KEPT = periodic(1, 10, routes=(Route(1, (Term(1),)),), keeps_newest=True)


def core_with(make_core: MakeCore, *rows: Row) -> Subject:
    core = make_core(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    core.commit(rows)
    return core


def publish(core: Subject, *events: bytes, now_ns: int = NOW_NS) -> None:
    for one in events:
        core.inject(datagram(PUBLISHER, one), now_ns=now_ns)


@pytest.mark.parametrize("row", [KEPT, aperiodic(1, keeps_newest=True)], ids=["slots", "no slots"])
def test_the_newest_event_is_kept_byte_for_byte(subject: MakeCore, row: Row) -> None:
    core = core_with(subject, row)
    assert core.newest(1) is None
    for slot in range(5):
        raw = event(1, NOW_NS + slot * 10 * MS, sequence=slot, value=-slot, options=slot)
        publish(core, raw)
        assert core.newest(1) == raw


def test_an_older_event_that_comes_late_does_not_replace_a_newer_one(subject: MakeCore) -> None:
    core = core_with(subject, KEPT)
    newer, older = event(1, NOW_NS + 20 * MS), event(1, NOW_NS + 10 * MS, options=2)
    publish(core, newer, older)
    assert core.newest(1) == newer
    assert core.counters()["dispatched"] == 2


def test_a_second_copy_does_not_replace_the_first(subject: MakeCore) -> None:
    core = core_with(subject, KEPT)
    first, copy = event(1, NOW_NS, value=1), event(1, NOW_NS, value=2)
    publish(core, first, copy)
    assert core.newest(1) == first
    assert core.counters()["duplicate"] == 1


def test_what_is_refused_is_not_kept(subject: MakeCore) -> None:
    core = core_with(subject, KEPT)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_source(901, is_publisher=True)
    core.inject(datagram(901, event(1, NOW_NS)), now_ns=NOW_NS)
    publish(core, event(1, NOW_NS + 3_600_000 * MS))
    assert core.counters()["policed"] == 2
    assert core.newest(1) is None


def test_an_event_that_is_due_nowhere_is_kept_all_the_same(subject: MakeCore) -> None:
    core = core_with(subject, replace(KEPT, routes=(Route(1, (Term(7),)),)))
    raw = event(1, NOW_NS + 10 * MS)
    publish(core, event(1, NOW_NS), raw)
    assert core.newest(1) == raw
    assert core.counters()["not_due"] >= 1


def test_a_clock_that_is_set_back_silences_the_newest_event_for_a_second_at_most(
    subject: MakeCore,
) -> None:
    core = core_with(subject, aperiodic(1, keeps_newest=True))
    before, after = event(1, NOW_NS), event(1, NOW_NS - 3_600_000 * MS, value=1)
    publish(core, before)
    publish(core, after, now_ns=NOW_NS + 999 * MS)
    assert core.newest(1) == before
    after = event(1, NOW_NS - 3_600_000 * MS + 1, value=2)
    publish(core, after, now_ns=NOW_NS + 1_000 * MS)
    assert core.newest(1) == after


@pytest.mark.parametrize("options_max", [0, 1, 24, 254, 255])
def test_events_up_to_the_room_are_kept_and_larger_ones_counted(
    subject: MakeCore, options_max: int
) -> None:
    core = core_with(subject, replace(KEPT, newest_options_max=options_max))
    fitting = event(1, NOW_NS, options=options_max)
    publish(core, fitting)
    assert core.newest(1) == fitting
    if options_max < 255:
        publish(core, event(1, NOW_NS + 10 * MS, options=options_max + 1))
        assert core.newest(1) == fitting
    assert core.counters()["newest_too_large"] == (options_max < 255)
    assert core.counters()["dispatched"] == core.counters()["in"]
    assert_reconciled(core, [1])


def test_a_change_of_the_row_keeps_the_event(subject: MakeCore) -> None:
    core = core_with(subject, KEPT)
    raw = event(1, NOW_NS, options=3)
    publish(core, raw)
    core.open_channel(ChannelSpec(2))
    routes = tuple(Route(channel_id, (Term(2), Term(3, modes=2))) for channel_id in (1, 2))
    for changed in (
        replace(KEPT, routes=routes),
        replace(KEPT, routes=()),
        replace(KEPT, phase_ns=MS),
        replace(KEPT, period=None),
    ):
        core.commit([changed])
        assert core.newest(1) == raw


def test_more_or_less_room_a_row_that_keeps_nothing_and_no_row_at_all_begin_with_none(
    subject: MakeCore,
) -> None:
    core = core_with(subject, KEPT)
    slot = 0
    for changed in (
        replace(KEPT, newest_options_max=255),
        replace(KEPT, newest_options_max=3),
        replace(KEPT, keeps_newest=False),
        KEPT,
    ):
        publish(core, event(1, NOW_NS + slot * 10 * MS))
        core.commit([changed])
        assert core.newest(1) is None
        slot += 1
    publish(core, event(1, NOW_NS + slot * 10 * MS))
    assert core.newest(1) is not None
    core.commit(removals=[1])
    assert core.newest(1) is None
    core.commit([KEPT])
    assert core.newest(1) is None


def test_variables_keep_their_events_apart(subject: MakeCore) -> None:
    core = core_with(subject, *(replace(KEPT, variable_id=v) for v in range(300)))
    rng = random.Random(3)
    kept = {}
    for slot in range(4):
        for variable_id in rng.sample(range(300), 200):
            raw = event(variable_id, NOW_NS + slot * 10 * MS, options=rng.randrange(4))
            publish(core, raw)
            kept[variable_id] = raw
    for variable_id in range(300):
        assert core.newest(variable_id) == kept.get(variable_id)
    assert core.newest(300) is None


@pytest.mark.parametrize("options_max", [-1, 256])
def test_room_that_no_event_could_need_is_refused(subject: MakeCore, options_max: int) -> None:
    with pytest.raises(LayoutError, match="newest_options_max"):
        core_with(subject, replace(KEPT, newest_options_max=options_max))
