"""Refusals of the first hop: foreign variables, wrong ports, stamps, slots, intervals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.core._core import Core
from gridstat.core.rows import PORT_URGENT, ChannelSpec, Route, Term
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
    told,
)

NEIGHBOUR = 901
"""A source that is a router: what comes from there was policed before."""

ROUTES = (Route(1, (Term(1),)),)
BOUND_NS = SMALL.stamp_bound_ns


def guarded_core(make_core: MakeCore) -> Subject:
    core = make_core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    core.open_source(NEIGHBOUR)
    core.open_channel(ChannelSpec(1))
    return core


def offer(core: Subject, *events: bytes, source: int = PUBLISHER, now_ns: int = NOW_NS) -> None:
    core.inject(datagram(source, *events), now_ns=now_ns)


@pytest.mark.feature("S3-105")
def test_an_event_before_its_declared_minimum_interval_is_refused_and_counted(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    for sequence, after_ms in enumerate((0, 3, 5, 9, 10, 100)):
        created_ns = NOW_NS + after_ms * MS
        offer(core, event(1, created_ns, sequence=sequence), now_ns=created_ns)
    assert [(created - NOW_NS) // MS for _, created in told(core.take_output(1))] == [0, 5, 10, 100]
    assert core.counters()["policed_interval"] == core.counters()["policed"] == 2
    assert_reconciled(core, [1])


@pytest.mark.feature("S3-105")
def test_an_alert_source_whose_clock_was_set_back_is_heard_again_after_one_interval(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    back_ns = 3_000 * MS
    for after_ms in (0, 2, 4, 5, 6, 9, 10):
        created_ns = NOW_NS + after_ms * MS - (back_ns if after_ms else 0)
        offer(core, event(1, created_ns, sequence=after_ms), now_ns=NOW_NS + after_ms * MS)
    heard = [(created - NOW_NS + back_ns) // MS for _, created in told(core.take_output(1))]
    assert heard[1:] == [5, 10]
    assert core.counters()["policed_interval"] == 4
    assert_reconciled(core, [1])


def test_an_alert_passes_when_its_stamp_or_its_arrival_keeps_the_interval(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    offer(core, event(1, NOW_NS), now_ns=NOW_NS)
    offer(core, event(1, NOW_NS + 5 * MS - 1), now_ns=NOW_NS + 5 * MS - 2)
    assert core.counters()["policed_interval"] == 1
    # Stamped in time though it arrives too soon, and the other way round: one of the two will do.
    offer(core, event(1, NOW_NS + 5 * MS), now_ns=NOW_NS + 2)
    offer(core, event(1, NOW_NS + 6 * MS), now_ns=NOW_NS + 5 * MS + 2)
    assert core.counters()["policed_interval"] == 1
    assert core.counters()["dispatched"] == 3


@pytest.mark.feature("S3-105")
@pytest.mark.parametrize(("interval_ms", "at_once"), [(1_000, 2), (10, 2), (1, 11)])
@pytest.mark.parametrize("is_belated", [False, True])
def test_no_choice_of_stamps_lets_alerts_pass_faster_than_their_interval(
    subject: MakeCore, interval_ms: int, at_once: int, *, is_belated: bool
) -> None:
    core = guarded_core(subject)
    interval_ns = interval_ms * MS
    core.commit(
        [aperiodic(1, interval_ns_min=interval_ns, is_stamp_exempt=is_belated, routes=ROUTES)]
    )
    # All stamps that the bound allows, an interval apart, as quick as can be; after an interval of
    # our clock the stamps begin again.
    if is_belated:
        at_once = max(2, 1 + 1_000 // interval_ms)
    span = min(2 * BOUND_NS // interval_ns, at_once + 20)
    for now_ns in range(NOW_NS, NOW_NS + 11 * interval_ns, interval_ns):
        for nth in range(span):
            created_ns = now_ns - BOUND_NS + nth * interval_ns
            offer(
                core, event(1, created_ns, sequence=(now_ns // interval_ns) % 2**16), now_ns=now_ns
            )
    assert len(told(core.take_output(1))) == at_once + 10
    assert core.counters()["policed_interval"] == 11 * span - at_once - 10
    assert_reconciled(core, [1])


def test_alerts_that_jitter_brings_together_pass_and_a_pace_is_won_back(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=50 * MS, routes=ROUTES)])
    # Sent every 50 ms; now and then one is late by almost as much, and meets the next.
    for nth in range(40):
        delay_ns = 49 * MS if nth % 4 == 0 else 0
        created_ns = NOW_NS + nth * 50 * MS
        offer(core, event(1, created_ns, sequence=nth), now_ns=created_ns + delay_ns)
    assert core.counters()["dispatched"] == 40


def test_copies_of_an_alert_do_not_use_up_its_pace(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    for nth in range(20):
        created_ns = NOW_NS + nth * 5 * MS
        for _ in range(5):
            offer(core, event(1, created_ns, sequence=nth), now_ns=created_ns)
    counters = core.counters()
    assert (counters["dispatched"], counters["duplicate"]) == (20, 80)


def test_no_change_of_its_row_lets_a_publisher_send_more(subject: MakeCore) -> None:
    core = guarded_core(subject)
    alert = aperiodic(1, interval_ns_min=1_000 * MS, routes=ROUTES)
    core.commit([alert])
    for nth in range(300):
        # A subscription of the publisher's own comes and goes with every alert.
        core.commit([replace(alert, keeps_newest=nth % 2 == 0, routes=ROUTES[: nth % 3])])
        created_ns = NOW_NS - (9 - nth % 18) * 1_000 * MS
        offer(core, event(1, created_ns, sequence=nth), now_ns=NOW_NS + nth * 10 * MS)
    counters = core.counters()
    assert counters["dispatched"] + counters["not_due"] == 3 + 1  # In three seconds.
    assert counters["policed"] == 300 - 4


def test_a_shorter_interval_holds_at_once_whatever_was_due_by_the_longer_one(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=3_600_000 * MS, routes=ROUTES)])
    for nth in range(3):
        offer(core, event(1, NOW_NS + nth, sequence=nth))
    core.commit([aperiodic(1, interval_ns_min=100 * MS, routes=ROUTES)])
    for nth in range(10, 20):
        created_ns = NOW_NS + nth * 100 * MS
        offer(core, event(1, created_ns, sequence=nth), now_ns=created_ns)
    assert core.counters()["dispatched"] >= 1 + 9


def test_a_routers_own_clock_that_goes_back_lets_no_alert_pass_too_soon(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    offer(core, event(1, NOW_NS), now_ns=NOW_NS)
    offer(core, event(1, NOW_NS + MS), now_ns=NOW_NS - 1_000 * MS)
    assert core.counters()["policed_interval"] == 1


@pytest.mark.feature("S3-105")
def test_a_second_event_in_a_slot_is_refused_at_the_first_hop_and_counted(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    core.commit([periodic(1, 10, routes=ROUTES)])
    for after_ms in (0, 4, 10, 6, 20, 14, 16):
        offer(core, event(1, NOW_NS + after_ms * MS))
    assert [(created - NOW_NS) // MS for _, created in told(core.take_output(1))] == [0, 10, 20]
    assert core.counters()["policed_slot"] == 4
    assert_reconciled(core, [1])


def test_a_publisher_is_remembered_for_64_slots_and_copies_for_256(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.commit([periodic(1, 10, routes=ROUTES)])
    for slot in (0, 1, 64, 0, 1):
        offer(core, event(1, NOW_NS + slot * 10 * MS))
    counters = core.counters()
    assert (counters["duplicate"], counters["policed_slot"]) == (1, 1)


def test_the_interval_is_not_policed_behind_the_first_hop(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.commit([aperiodic(1, interval_ns_min=5 * MS, routes=ROUTES)])
    events = [event(1, NOW_NS + i, sequence=i) for i in range(4)]
    offer(core, *events, source=NEIGHBOUR)
    assert len(told(core.take_output(1))) == 4
    offer(core, event(1, NOW_NS + 9, sequence=9))
    assert core.counters()["policed_interval"] == 1


def test_a_variable_belongs_to_one_publisher(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.open_source(902, is_publisher=True)
    core.commit([periodic(1, 10, routes=ROUTES)])
    offer(core, event(1, NOW_NS), source=902)
    assert core.take_output(1) == []
    assert core.counters()["policed_source"] == 1
    offer(core, event(1, NOW_NS))
    assert told(core.take_output(1)) == [(1, NOW_NS)]


@pytest.mark.parametrize("side", [-1, 1])
def test_a_publishers_stamp_is_held_to_the_present(subject: MakeCore, side: int) -> None:
    core = guarded_core(subject)
    rows = [periodic(v, 10, routes=ROUTES) for v in (1, 2)]
    core.commit([*rows, periodic(3, 10, is_stamp_exempt=True, routes=ROUTES)])
    within, beyond = NOW_NS + side * BOUND_NS, NOW_NS + side * (BOUND_NS + 1)
    offer(core, event(1, within), event(2, beyond), event(3, beyond))
    assert told(core.take_output(1)) == [(1, within), (3, beyond)]
    offer(core, event(2, beyond), source=NEIGHBOUR)
    assert told(core.take_output(1)) == [(2, beyond)]
    assert core.counters()["policed_stamp"] == 1
    assert_reconciled(core, [1])


def test_only_urgent_variables_may_use_the_urgent_port(subject: MakeCore) -> None:
    core = guarded_core(subject)
    core.commit([periodic(1, 10, routes=ROUTES), periodic(2, 10, is_urgent=True, routes=ROUTES)])
    both = datagram(PUBLISHER, event(1, NOW_NS), event(2, NOW_NS))
    core.inject(both, port=PORT_URGENT, now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(2, NOW_NS)]
    assert core.counters()["policed_port"] == 1
    core.inject(both, now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(1, NOW_NS)]


@pytest.mark.feature("S0-131")
def test_counters_reconcile_whatever_arrives(subject: MakeCore) -> None:
    core = guarded_core(subject)
    alert = aperiodic(2, is_urgent=True, interval_ns_min=MS, routes=ROUTES)
    core.commit([periodic(1, 10, routes=(Route(1, (Term(2),)),)), alert, periodic(3, 10)])
    for slot in range(40):
        created_ns = NOW_NS + slot * 10 * MS
        burst = [event(v, created_ns, sequence=slot) for v in (1, 2, 3, 4)]
        offer(core, *burst, now_ns=created_ns)
        offer(core, *burst, source=NEIGHBOUR, now_ns=created_ns)
        offer(core, *burst, source=77, now_ns=created_ns)
        offer(core, event(2, created_ns + 1, sequence=slot), now_ns=created_ns)
        offer(core, event(1, created_ns + 600 * 1_000 * MS), now_ns=created_ns)
        core.inject(datagram(PUBLISHER, *burst)[:-1], now_ns=created_ns)
        assert_reconciled(core, [1])
    counters = core.counters()
    expected = {
        "in": 40 * 15,
        "malformed_length": 40,
        "unknown_channel": 160,
        "unknown_variable": 80,
        "policed_interval": 40,
        "policed_stamp": 40,
        "duplicate": 120,
        "not_due": 60,
        "dispatched": 60,
    }
    assert {name: counters[name] for name in expected} == expected
    assert core.policed() == {
        (PUBLISHER, 1): (2, {"stamp": 40}),
        (PUBLISHER, 2): (2, {"interval": 40}),
    }
    channel = core.channel_counters(1)
    assert (channel["due"], channel["sent"]) == (60, 60)


def test_policed_events_are_counted_by_channel_and_variable_at_the_first_hop_only(
    subject: MakeCore,
) -> None:
    core = guarded_core(subject)
    other = PUBLISHER + 50
    core.open_source(other, is_publisher=True)
    core.commit([periodic(1, 10, routes=ROUTES), periodic(2, 10, routes=ROUTES)])
    offer(core, event(1, NOW_NS), event(1, NOW_NS + 1, sequence=1), event(2, NOW_NS))
    offer(core, event(1, NOW_NS + 2, sequence=2))
    offer(core, event(1, NOW_NS), source=other)
    offer(core, event(1, NOW_NS), source=NEIGHBOUR)  # A copy, and not of the first hop.
    core.inject(datagram(NEIGHBOUR, event(2, NOW_NS)), port=PORT_URGENT, now_ns=NOW_NS)
    assert core.counters()["policed_port"] == 1
    assert core.policed() == {
        (PUBLISHER, 1): (2, {"slot": 2}),
        (other, 1): (2, {"source": 1}),
    }


def test_the_compiled_core_counts_so_many_policed_variables_and_the_newest_of_them() -> None:
    core = Core(SMALL)
    core.open_source(PUBLISHER, is_publisher=True)
    variables = range(1, 3_000)
    core.commit([periodic(each, 10) for each in variables])
    for each in variables:
        core.inject(datagram(PUBLISHER, event(each, 1)), now_ns=NOW_NS)
    found = core.policed()
    assert core.counters()["policed_stamp"] == len(variables)
    assert 512 < len(found) <= 1_024
    assert (PUBLISHER, variables[-1]) in found
    assert {counts["stamp"] for _, counts in found.values()} == {1}
    assert max(life for life, _ in found.values()) > 2  # Some have taken another's place.
