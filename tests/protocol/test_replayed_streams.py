"""Replayed streams in a core: stamps of the past at a bounded pace, below everything else.

Two subjects. Time is virtual: the tests say what time it is, and pump.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.core.rows import CLASS_REPLAY, ChannelSpec, Limits, Route, Row, Term
from gridstat.endpoint import Receiver, Sender
from gridstat.model.rate_law import Period
from tests.protocol.ends import wait_for
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
    events_in,
    periodic,
    told,
)

S = 1_000 * MS
HOUR_NS = 3_600 * S
PAST_NS = NOW_NS - 5 * HOUR_NS
"""Time on a slot of every period used here."""
MEGABIT = ChannelSpec(1, bandwidth_bytes_per_s=125_000, queue_events_max=256)
LIVE, REPLAYED = 1, 2


def replayed(variable_id: int = REPLAYED, period_ms: int = 10, *, speed: int = 10) -> Row:
    return periodic(
        variable_id,
        period_ms,
        is_stamp_exempt=True,
        interval_ns_min=period_ms * MS // speed,
        routes=(Route(1, (Term(1),), CLASS_REPLAY),),
    )


def live(period_ms: int = 10) -> Row:
    return periodic(LIVE, period_ms, routes=(Route(1, (Term(1),), 6),))


def core_with(
    make_core: MakeCore, spec: ChannelSpec, *rows: Row, limits: Limits = SMALL
) -> Subject:
    core = make_core(limits)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_channel(spec)
    core.commit(rows)
    return core


def offer(core: Subject, variable_id: int, created_ns: int, *, now_ns: int = NOW_NS) -> None:
    core.inject(datagram(PUBLISHER, event(variable_id, created_ns)), now_ns=now_ns)


def test_a_replayed_stream_passes_the_first_hop_with_stamps_of_hours_ago(
    subject: MakeCore,
) -> None:
    core = core_with(subject, ChannelSpec(1), live(), replayed())
    offer(core, LIVE, PAST_NS)
    offer(core, REPLAYED, PAST_NS)
    assert told(core.take_output(1)) == [(REPLAYED, PAST_NS)]
    assert core.counters()["policed_stamp"] == 1


def test_a_replayed_stream_is_held_to_its_pace_and_what_is_too_fast_is_counted(
    subject: MakeCore,
) -> None:
    core = core_with(subject, ChannelSpec(1), replayed(period_ms=10, speed=10))
    # Forty seconds of the past in two of the present: twice the speed that was registered.
    for slot in range(4_000):
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS, now_ns=NOW_NS + slot * MS // 2)
    passed = len(told(core.take_output(1)))
    assert 3_000 <= passed <= 3_002  # What two seconds allow, and the tolerance of one.
    assert core.counters()["policed_interval"] == 4_000 - passed
    assert_reconciled(core, [1])


@pytest.mark.parametrize("is_recommitted", [False, True])
@pytest.mark.parametrize("from_ns", [PAST_NS, NOW_NS - 9 * S])
def test_neither_a_change_of_the_row_nor_a_stamp_of_today_frees_a_replayed_stream_of_its_pace(
    subject: MakeCore, from_ns: int, *, is_recommitted: bool
) -> None:
    row = replayed(period_ms=10, speed=1)
    core = core_with(subject, ChannelSpec(1), row)
    for slot in range(1_000):
        if is_recommitted and slot % 20 == 0:
            core.commit([replace(row, keeps_newest=slot % 40 == 0)])
        offer(core, REPLAYED, from_ns + slot * 10 * MS, now_ns=NOW_NS + slot * MS)
    passed = len(told(core.take_output(1)))
    assert 200 <= passed <= 202  # What a second allows, and the tolerance of one.
    assert core.counters()["policed_interval"] == 1_000 - passed


def test_a_replayed_stream_at_its_own_speed_loses_nothing_to_the_pace(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1), replayed(period_ms=10, speed=10))
    for slot in range(5_000):
        burst_ns = slot // 50 * 50 * MS  # As a publisher sends that wakes up now and then.
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS, now_ns=NOW_NS + burst_ns)
    assert len(told(core.take_output(1))) == 5_000


def test_a_pace_holds_only_where_a_publisher_comes_in(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1), replayed(speed=1))
    core.open_source(901)
    for slot in range(300):
        octets = event(REPLAYED, PAST_NS + slot * 10 * MS)
        core.inject(datagram(901, octets), now_ns=NOW_NS)
    assert len(told(core.take_output(1))) == 300


@pytest.mark.parametrize("gap", [256, 1_000, 10**6])
def test_a_replayed_stream_jumps_over_a_gap_of_the_archive_and_loses_nothing(
    subject: MakeCore, gap: int
) -> None:
    core = core_with(subject, ChannelSpec(1), replayed())
    slots = [0, 1, 2, 2 + gap, 3 + gap, 3 + 2 * gap]
    for slot in slots:
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS)
    assert [(created - PAST_NS) // (10 * MS) for _, created in told(core.take_output(1))] == slots


def test_a_second_copy_of_a_replayed_slot_goes_no_further(subject: MakeCore) -> None:
    core = core_with(subject, ChannelSpec(1), replayed())
    for slot in (0, 300, 300, 0, 301):
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS)
    assert [(created - PAST_NS) // (10 * MS) for _, created in told(core.take_output(1))] == [
        0,
        300,
        301,
    ]


def test_replay_shares_no_datagram_with_others_and_holds_the_line_half_a_millisecond(
    subject: MakeCore,
) -> None:
    spec = replace(MEGABIT, bandwidth_bytes_per_s=400_000)
    core = core_with(subject, spec, live(period_ms=1), replayed())
    for slot in range(20):
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS)
    for slot in range(3):
        offer(core, LIVE, NOW_NS + slot * MS)
    at_once = len(told(core.take_output(1)))  # The line was idle, without other traffic.
    for step in range(1, 200):
        core.pump(NOW_NS + step * MS // 10)
    sent = [events_in(octets) for _, octets in core.take_output(1)]
    kinds = [{one[11] for one in events} for events in sent]
    assert kinds[0] == {LIVE}
    assert set().union(*kinds[1:]) == {REPLAYED}
    assert all(16 + 24 * len(events) <= 200 for events in sent[1:])
    assert at_once + sum(map(len, sent)) == 20 + 3


def test_however_much_is_replayed_half_the_buffers_are_left_to_others(subject: MakeCore) -> None:
    limits = replace(SMALL, pool_small=64)
    core = core_with(subject, MEGABIT, live(period_ms=1), replayed(), limits=limits)
    for slot in range(200):
        offer(core, REPLAYED, PAST_NS + slot * 10 * MS)
    counters = core.channel_counters(1)
    assert core.pool_free()[0] == 32
    assert counters["replay_queued"] == counters["queued"] == 32
    assert counters["pool_empty"] == 200 - 32 - counters["sent"] > 0
    for slot in range(32):
        offer(core, LIVE, NOW_NS + slot * MS)
    assert core.channel_counters(1)["pool_empty"] == counters["pool_empty"]
    assert core.channel_counters(1)["replay_queued"] == 32
    for step in range(1, 2_000):
        core.pump(NOW_NS + step * MS)
    assert [variable_id for variable_id, _ in told(core.take_output(1))].count(LIVE) == 32
    assert core.channel_counters(1)["replay_queued"] == 0
    assert_reconciled(core, [1])


def test_a_stream_on_a_full_line_loses_nothing_to_replay_that_fills_the_rest(
    subject: MakeCore,
) -> None:
    core = core_with(subject, MEGABIT, live(period_ms=1), replayed(period_ms=10, speed=100))
    for step in range(3_000):
        now_ns = NOW_NS + step * MS
        core.pump(now_ns)
        offer(core, LIVE, now_ns, now_ns=now_ns)
        for nth in range(5):
            offer(core, REPLAYED, PAST_NS + (5 * step + nth) * 10 * MS, now_ns=now_ns)
    for step in range(3_000, 3_200):
        core.pump(NOW_NS + step * MS)
    counts = [variable_id for variable_id, _ in told(core.take_output(1))]
    assert counts.count(LIVE) == 3_000
    # A live event takes 68 of 125 bytes a millisecond; replay gets what is left, and no more.
    assert 1_500 < counts.count(REPLAYED) < 4_000
    assert_reconciled(core, [1])


def test_a_belated_alert_passes_the_first_hop_at_the_pace_of_its_interval(
    subject: MakeCore,
) -> None:
    alert = aperiodic(3, is_urgent=True, interval_ns_min=S, routes=(Route(1, (Term(1),)),))
    core = core_with(subject, ChannelSpec(1), alert, replace(alert, variable_id=4))
    core.commit([replace(alert, is_stamp_exempt=True)])
    offer(core, 4, NOW_NS - 20 * S)
    for nth in range(6):
        offer(core, 3, NOW_NS - (60 - 5 * nth) * S)
    assert [variable_id for variable_id, _ in told(core.take_output(1))] == [3, 3]
    assert core.counters()["policed_stamp"] == 1
    assert core.counters()["policed_interval"] == 4
    offer(core, 3, NOW_NS - 60 * S, now_ns=NOW_NS + 2 * S)
    assert core.counters()["duplicate"] == 1
    assert_reconciled(core, [1])


@pytest.mark.parametrize(
    ("flags", "deadline_ns", "delivered"), [(16, 0, 6), (0, 0, 4), (16, MS, 4)]
)
def test_a_receiver_follows_what_is_flagged_as_replayed_over_gaps_unless_it_is_promised_in_time(
    flags: int, deadline_ns: int, delivered: int
) -> None:
    slots = [0, 1, 2, 1_002, 50_000, 50_001]
    with Receiver() as receiver, Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
        receiver.expect(REPLAYED, Period(1, 100), deadline_ns=deadline_ns)
        receiver.start()
        for slot in slots:
            sender.send(REPLAYED, slot, created_ns=PAST_NS + slot * 10 * MS, flags=flags)
        wait_for(receiver, delivered=delivered, policed_jump=len(slots) - delivered)


@pytest.mark.parametrize(("deadline_ns", "late", "unknown"), [(0, 0, 7), (MS, 10, 0)])
def test_the_lateness_of_a_replayed_event_is_not_judged_where_none_was_promised(
    deadline_ns: int, late: int, unknown: int
) -> None:
    with Receiver() as receiver, Sender(7, ("127.0.0.1", *receiver.ports)) as sender:
        receiver.expect(REPLAYED, Period(1, 100), deadline_ns=deadline_ns)
        receiver.start()
        for slot in range(10):
            flags = 16 if slot < 7 else 0
            sender.send(REPLAYED, slot, created_ns=PAST_NS + slot * 10 * MS, flags=flags)
        wait_for(receiver, delivered=10)
        counted = receiver.variable_counters(REPLAYED)
    assert (counted["late"], counted["unknown"]) == (late, unknown)
