"""Tally of a contract: every slot once, by the steady clock, and never less."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core.samples import SAMPLE
from gridstat.endpoint.arrival_clock import Arrival
from gridstat.endpoint.slot_clock import StartTime
from gridstat.endpoint.tally import OPEN_SLOTS_MAX, SETTLE_NS, Tally
from gridstat.endpoint.violation import Terms
from gridstat.model.rate_law import Period
from gridstat.model.status import EventFlag

if TYPE_CHECKING:
    from gridstat.endpoint.ledger import Ledger

MS = 1_000_000
WALL = 10**15
"""Lead of the wall clock over the steady one."""
TERMS = Terms(Period(1, 100), 0, 1, 20 * MS)
BAD_TIME = 0b10
CLOSED_MS = 20 + SETTLE_NS // MS
"""Time from the due arrival of a slot to its close."""


class TallyRig:
    """A tally, and events that come to it; all times are in ms since the contract began."""

    def __init__(self, terms: Terms | None = TERMS, *, is_exact: bool = False) -> None:
        latency_ns = 20 * MS if terms is None else terms.latency_ns
        self.tally = Tally(terms, latency_ns, StartTime(0, WALL, is_exact))
        self.clock_ms = 0.0
        """Lead of the publisher's clock."""

    def come(self, *created_ms: float, latency_ms: float = 2, flags: int = 0) -> int:
        """Let events arrive one by one; how many of them are due."""
        return sum(self._one(each, latency_ms, flags) for each in created_ms)

    def _one(self, created_ms: float, latency_ms: float, flags: int) -> int:
        arrived_ns = int((created_ms + latency_ms) * MS)
        created_ns = int((created_ms + self.clock_ms) * MS) + WALL
        row = (created_ns, arrived_ns + WALL, 1, 0, flags, 0, 0)
        arrival = Arrival(arrived_ns, arrived_ns + WALL)
        return len(self.tally.due(np.array([row], SAMPLE), [], arrival)[0])

    def stream(self, first_ms: int, last_ms: int) -> None:
        self.come(*range(first_ms, last_ms + 1, 10))

    def at(self, ms: float) -> Ledger:
        return self.tally.ledger(int(ms * MS))


def told(ledger: Ledger) -> tuple[int, int, int]:
    assert ledger.expected == ledger.delivered + ledger.lost
    return ledger.expected, ledger.delivered, ledger.lost


def test_a_contract_over_which_nothing_ever_comes_loses_every_slot() -> None:
    rig = TallyRig()
    assert told(rig.at(CLOSED_MS + 9)) == (0, 0, 0)
    assert told(rig.at(CLOSED_MS + 10)) == (1, 0, 1)
    assert told(rig.at(3_600_000 + CLOSED_MS)) == (360_000, 0, 360_000)


def test_the_first_event_begins_the_exact_count() -> None:
    rig = TallyRig()
    rig.come(500, 480, 510)
    assert told(rig.at(520)) == (3, 3, 0)


def test_a_slot_passed_over_is_lost_when_its_window_closes_and_not_before() -> None:
    rig = TallyRig()
    rig.come(0, 10, 20, 50, 60)
    assert told(rig.at(60)) == (5, 5, 0)
    assert told(rig.at(32 + CLOSED_MS)) == (6, 5, 1)
    assert told(rig.at(42 + CLOSED_MS)) == (7, 5, 2)


def test_an_event_out_of_order_is_delivered_while_its_window_is_open() -> None:
    rig = TallyRig()
    rig.come(0, 10, 30)
    rig.come(20, latency_ms=900)
    assert told(rig.at(920)) == (4, 4, 0)
    assert rig.at(920).late == 1


def test_what_comes_after_its_window_has_closed_lowers_nothing() -> None:
    rig = TallyRig()
    rig.stream(0, 10)
    rig.stream(30, 3_000)
    before = rig.at(3_002)
    assert told(before) == (301, 300, 1)
    rig.come(20, latency_ms=3_010)
    after = rig.at(3_030)
    assert told(after) == told(before)
    assert after.recovered == 1


def test_silence_counts_by_the_steady_clock_since_the_last_arrival() -> None:
    rig = TallyRig()
    rig.stream(0, 100)
    assert told(rig.at(111 + CLOSED_MS)) == (11, 11, 0)
    assert told(rig.at(112 + CLOSED_MS)) == (12, 11, 1)
    assert told(rig.at(1_112 + CLOSED_MS)) == (112, 11, 101)


def test_a_publisher_whose_clock_is_always_behind_or_ahead_loses_nothing() -> None:
    for clock_ms in (-3_600_000, -9_000, -500, 500, 3_600_000):
        rig = TallyRig()
        rig.clock_ms = clock_ms
        rig.stream(0, 5_000)
        assert told(rig.at(5_002)) == (501, 501, 0)


def test_a_clock_set_forward_makes_no_loss_and_hides_none() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.clock_ms = 3_600_000
    rig.stream(1_030, 5_000)
    assert told(rig.at(5_002)) == (501, 499, 2)


def test_a_clock_set_back_is_followed_once_nothing_newer_has_come_for_a_second() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.clock_ms = -3_600_000
    rig.stream(2_010, 60_000)  # The receiver passes none of them on before.
    ledger = rig.at(60_002)
    assert ledger.recovered <= 1
    assert ledger.delivered >= 101 + 5_798
    assert ledger.lost <= 102
    assert told(rig.at(61_000))[2] == ledger.lost


def test_slots_lost_to_a_clock_that_was_set_back_are_counted() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.clock_ms = -3_600_000
    rig.stream(2_010, 60_000)  # Receiver and routers pass none of them on before.
    ledger = rig.at(60_002)
    assert ledger.recovered == 0
    assert told(ledger) == (6_001, 5_901, 100)
    assert ledger.lost_to_clock == 100
    assert told(rig.at(61_000)) == (6_001, 5_901, 100)
    assert ledger.gap_slots_max == 100


def test_a_clock_set_back_to_just_before_the_first_event_is_a_clock_that_was_set() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.clock_ms = -4_000
    rig.stream(2_010, 10_000)
    ledger = rig.at(10_002)
    assert told(ledger) == (1_001, 900, 101)
    assert ledger.lost_to_clock == 101


def test_only_every_nth_slot_is_lost_to_a_clock_that_was_set_back() -> None:
    rig = TallyRig(replace(TERMS, every=5))
    rig.stream(0, 1_000)
    rig.clock_ms = -3_600_000
    rig.stream(2_010, 10_000)
    ledger = rig.at(10_002)
    assert abs(ledger.expected - 201) <= 1, "none is counted twice, and none is forgotten"
    assert 20 <= ledger.lost_to_clock <= ledger.lost <= 21, "one window closes before"


def test_slots_lost_before_a_clock_that_was_set_forward_are_counted_with_it() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.clock_ms = 3_600_000
    rig.stream(1_030, 5_000)
    assert rig.at(5_002).lost_to_clock == 2


def test_other_losses_are_not_lost_to_a_clock() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.stream(3_000, 5_000)
    ledger = rig.at(9_000)
    assert ledger.lost > 0
    assert ledger.lost_to_clock == 0


def test_a_burst_of_stragglers_is_no_clock_that_was_set_back() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    assert rig.at(6_000).lost == 397  # The last 103 are still open.
    for slot in range(100):
        rig.come(1_010 + 10 * slot, latency_ms=5_000 - 10 * slot)
    rig.stream(6_010, 9_000)
    ledger = rig.at(9_002)
    assert ledger.recovered == 100
    assert ledger.delivered == 101 + 300
    assert ledger.lost == 500


def test_an_event_is_late_only_beyond_its_promised_latency() -> None:
    rig = TallyRig()
    rig.come(0, 10, 20, latency_ms=20)
    assert rig.at(40).late == 0
    rig.come(30, latency_ms=20.001)
    assert rig.at(51).late == 1


def test_bad_time_counts_as_unknown_and_never_as_late_or_lost() -> None:
    rig = TallyRig()
    rig.clock_ms = -9_000
    for created_ms in range(0, 3_000, 10):
        rig.come(created_ms, flags=BAD_TIME)
    ledger = rig.at(3_000)
    assert told(ledger) == (300, 300, 0)
    assert (ledger.unknown, ledger.late) == (300, 0)


def test_an_event_that_claims_to_be_replayed_is_late_all_the_same_where_it_is_promised() -> None:
    rig = TallyRig()
    rig.come(*range(0, 300, 10), latency_ms=30, flags=EventFlag.REPLAYED)
    ledger = rig.at(300)
    assert (ledger.delivered, ledger.late, ledger.unknown) == (30, 30, 0)


def test_what_is_replayed_is_promised_in_no_time_and_never_late() -> None:
    tally = Tally(None, 0, StartTime(0, WALL))
    row = (WALL, WALL + 9_000 * MS, 1, 0, EventFlag.REPLAYED, 0, 0)
    tally.due(np.array([row], SAMPLE), [], Arrival(9_000 * MS, WALL + 9_000 * MS))
    ledger = tally.ledger(9_000 * MS)
    assert (ledger.delivered, ledger.late, ledger.unknown) == (1, 0, 1)


def test_only_due_slots_pass_and_count() -> None:
    rig = TallyRig(replace(TERMS, every=4))
    assert rig.come(*range(0, 400, 10)) == 10
    assert told(rig.at(400)) == (10, 10, 0)


def test_a_faster_contract_owes_the_slots_from_then_on() -> None:
    rig = TallyRig(replace(TERMS, every=4))
    rig.stream(0, 1_000)
    rig.tally.renew(TERMS, TERMS.latency_ns, StartTime(1_005 * MS, WALL + 1_005 * MS))
    rig.stream(1_010, 1_200)
    rig.stream(1_220, 5_000)
    ledger = rig.at(5_002)
    assert ledger.lost == 1
    assert ledger.delivered == 26 + 20 + 379


def test_a_slower_contract_owes_no_more_than_its_own_slots() -> None:
    rig = TallyRig()
    rig.stream(0, 1_000)
    rig.tally.renew(replace(TERMS, every=4), 20 * MS, StartTime(1_005 * MS, WALL + 1_005 * MS))
    rig.stream(1_010, 1_070)
    rig.stream(1_130, 5_000)
    ledger = rig.at(5_002)
    assert ledger.lost == 2  # Of 1,080 and 1,120 ms.
    assert ledger.delivered == 101 + 1 + 97


def test_a_loss_right_before_other_terms_is_not_forgotten() -> None:
    rig = TallyRig()
    rig.stream(0, 900)
    rig.stream(1_000, 1_000)
    rig.tally.renew(replace(TERMS, latency_ns=30 * MS), 30 * MS, StartTime(1_005 * MS, WALL))
    rig.stream(1_010, 5_000)
    assert told(rig.at(5_002)) == (501, 492, 9)


def test_an_identifier_that_is_given_up_owes_all_slots_up_to_then() -> None:
    rig = TallyRig()
    rig.tally.limit(1_000 * MS + WALL)
    rig.stream(0, 900)
    assert told(rig.at(60_000)) == (100, 91, 9)
    assert told(rig.tally.finish(60_000 * MS)) == (100, 91, 9)


def test_an_announced_identifier_owes_all_slots_from_then_on() -> None:
    rig = TallyRig(is_exact=True)
    rig.stream(50, 5_000)
    assert told(rig.at(5_002)) == (500, 496, 4)


def test_what_was_passed_over_is_lost_at_the_end() -> None:
    rig = TallyRig(replace(TERMS, latency_ns=3_600_000 * MS))
    rig.come(0, 10, 40)
    assert told(rig.at(2_000)) == (3, 3, 0)
    assert told(rig.tally.finish(2_000 * MS)) == (5, 3, 2)


def test_more_open_slots_than_can_be_kept_are_lost_at_once() -> None:
    rig = TallyRig(replace(TERMS, latency_ns=3_600_000 * MS))
    rig.come(0, 10 * (OPEN_SLOTS_MAX + 101))
    assert rig.at(2_000).lost == 100


def test_an_aperiodic_variable_is_expected_when_it_comes() -> None:
    rig = TallyRig(None)
    rig.come(1, 2, 500)
    rig.come(501, latency_ms=21)
    assert told(rig.at(3_600_000)) == (4, 4, 0)
    assert rig.at(3_600_000).late == 1


@given(
    fates=st.lists(st.sampled_from(["in time", "lost", "behind", "long behind"]), max_size=300),
    looks=st.sets(st.integers(0, 300)),
)
def test_no_count_ever_falls_and_each_slot_is_told_once(fates: list[str], looks: set[int]) -> None:
    rig = TallyRig()
    latency_ms = {"in time": 2, "behind": 900, "long behind": 1_500}
    fates = ["in time", *fates, *["in time"] * 200]
    arrivals = sorted(
        (10 * slot + latency_ms[fate], 10 * slot)
        for slot, fate in enumerate(fates)
        if fate != "lost"
    )
    before = rig.at(0)
    for turn, (arrived_ms, created_ms) in enumerate(arrivals):
        rig.come(created_ms, latency_ms=arrived_ms - created_ms)
        if turn in looks:
            found = rig.at(arrived_ms)
            told(found)
            for name in ("expected", "delivered", "late", "lost", "unknown", "recovered"):
                assert getattr(found, name) >= getattr(before, name)
            before = found
    ledger = rig.at(10 * len(fates))
    assert told(ledger)[0] <= len(fates)
    assert ledger.delivered + ledger.recovered == len(arrivals)
    final = rig.tally.finish(10 * len(fates) * MS)
    assert final.expected == len(fates)
    assert final.lost - final.recovered == fates.count("lost")


@given(
    lost=st.sets(st.integers(1, 198)),
    cuts=st.sets(st.integers(1, 199)),
    latency_ms=st.integers(0, 40),
    every=st.sampled_from([1, 3]),
)
def test_a_batch_is_counted_as_its_events_are_one_by_one(
    lost: set[int], cuts: set[int], latency_ms: int, every: int
) -> None:
    slots = [slot for slot in range(200) if slot not in lost]
    one_by_one, in_batches = (
        TallyRig(replace(TERMS, every=every)),
        TallyRig(replace(TERMS, every=every)),
    )
    one_by_one.come(*(10 * slot for slot in slots), latency_ms=latency_ms)
    edges = [0, *sorted(cuts), 200]
    for first, end in pairwise(edges):
        rows = [
            (10 * slot * MS + WALL, (10 * slot + latency_ms) * MS + WALL, 1, 0, 0, 0, 0)
            for slot in slots
            if first <= slot < end
        ]
        at_ns = (10 * end + latency_ms) * MS
        if rows:
            arrival = Arrival(at_ns, at_ns + WALL)
            in_batches.tally.due(np.array(rows, SAMPLE), [], arrival)
    assert in_batches.at(5_000) == one_by_one.at(5_000)


def test_every_latency_that_is_known_is_in_the_histogram() -> None:
    rig = TallyRig()
    rig.come(0, 10, latency_ms=0.0009)
    rig.come(20, latency_ms=2)
    rig.come(30, flags=BAD_TIME)
    rig.come(50, latency_ms=900)
    found = rig.at(1_000)
    assert found.latency_counts == (2, *[0] * 10, 1, *[0] * 8, 1)
    assert sum(found.latency_counts) == found.delivered - found.unknown


def test_a_whole_batch_counts_its_latencies_like_single_events() -> None:
    one, many = TallyRig(), TallyRig()
    rows = [
        (WALL + at * 10 * MS, WALL + at * 10 * MS + 1_000 * (at + 1), 1, 0, 0, 0, 0)
        for at in range(200)
    ]
    one.come(-10)
    many.come(-10)
    arrived_ns = rows[-1][1] - WALL
    for row in rows:
        one.tally.due(np.array([row], SAMPLE), [], Arrival(row[1] - WALL, row[1]))
    for at in range(0, 200, 50):
        some = np.array(rows[at : at + 50], SAMPLE)
        many.tally.due(some, [], Arrival(arrived_ns, arrived_ns + WALL))
    assert one.at(2_000) == many.at(2_000)
    assert sum(one.at(2_000).latency_counts) == 201


def test_a_wall_clock_that_was_set_does_not_move_the_histogram() -> None:
    plain, jumped = TallyRig(), TallyRig()
    for rig, ahead_ns in ((plain, 0), (jumped, 3_600 * 10**9)):
        rig.come(-10)
        rows = [(WALL + at * 10 * MS, WALL + at * 10 * MS + 2 * MS) for at in range(50)]
        batch = np.array([(*row, 1, 0, 0, 0, 0) for row in rows], SAMPLE)
        batch["received_ns"] += np.uint64(ahead_ns)
        arrived_ns = rows[-1][1] - WALL
        arrival = Arrival(arrived_ns, arrived_ns + WALL + ahead_ns, -ahead_ns)
        rig.tally.due(batch, [], arrival)
    assert plain.at(500) == jumped.at(500)
    assert sum(plain.at(500).latency_counts) == 51


def test_the_worst_gap_is_the_longest_run_of_lost_slots() -> None:
    rig = TallyRig()
    rig.stream(0, 100)
    rig.stream(120, 200)
    rig.stream(250, 4_000)
    rig.stream(4_020, 6_000)
    found = rig.at(6_002)
    assert found.lost == 6
    assert (found.gap_slots_max, found.gap_ended_ns) == (4, WALL + 250 * MS)


def test_a_silence_is_one_gap_however_often_it_is_looked_at() -> None:
    rig = TallyRig()
    rig.stream(0, 100)
    for ms in range(1_000, 9_000, 700):
        found = rig.at(ms)
    assert found.gap_slots_max == found.lost > 600
    assert found.gap_ended_ns == WALL + (110 + 10 * found.lost) * MS


@pytest.mark.parametrize("hours", [1, -1])
def test_all_clocks_set_by_an_hour_cost_a_period_at_most_in_the_ledger(hours: int) -> None:
    rig = TallyRig()
    rig.stream(0, 2_000)
    rig.clock_ms = hours * 3_600_000
    rig.stream(2_010, 4_000)
    ledger = rig.at(4_002)
    assert ledger.lost == ledger.lost_to_clock <= 1
    assert ledger.delivered == 401
    assert told(rig.at(4_002 + CLOSED_MS))[1] == 401


@pytest.mark.parametrize("latency_ms", [2_000, 30_000])
def test_events_on_their_way_at_a_change_of_the_divisor_are_no_clock_that_was_set(
    latency_ms: int,
) -> None:
    """A contract is lowered to every third slot, to every fourth, and raised again, as bands do."""
    terms = replace(TERMS, latency_ns=latency_ms * MS)
    rig = TallyRig(terms)
    rig.stream(10, 1_000)
    last_ms = 1_000
    for at_ms, every in ((1_005, 3), (2_205, 4), (5_005, 3)):
        rig.stream(last_ms + 10, at_ms - 105)
        start = StartTime(at_ms * MS, WALL + at_ms * MS)
        rig.tally.renew(replace(terms, every=every), latency_ms * MS, start)
        rig.come(*range(at_ms - 95, at_ms, 10), latency_ms=100)
        last_ms = at_ms - 5
    rig.stream(last_ms + 10, 90_000)
    ledger = rig.at(90_000)
    assert ledger.lost_to_clock == 0
    assert ledger.lost == 0
