"""Simulated PMUs measure in every slot once; a subscriber's ledger finds every hole."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.console.grid import Pmu
from gridstat.console.simulation.deliveries import Deliveries, Expectation, slots_due
from gridstat.console.simulation.schedule import LATE_NS_MAX, Schedule, instant_ns
from gridstat.model.identifiers import VariableId
from gridstat.model.rate_law import NS_PER_S, Period, slot_of

NOW_NS = 1_700_000_000 * NS_PER_S
THIRTY = Period(1, 30)
SIXTY = Period(1, 60)
VOLTAGE = VariableId(1)
PERIODS = st.builds(Period, st.integers(1, 10), st.integers(1, 1_000))


@given(PERIODS, st.integers(0, 10**9), st.integers(0, 10**9))
def test_an_instant_lies_in_its_own_slot(period: Period, slot: int, phase_ns: int) -> None:
    assert slot_of(instant_ns(slot, period, phase_ns), period, phase_ns) == slot


def test_every_slot_comes_out_once_and_in_time() -> None:
    pmus = [
        Pmu("a/b/c", ("r",), THIRTY, ("frequency",)),
        Pmu("a/b/d", ("r",), SIXTY, ("frequency",)),
    ]
    schedule = Schedule(pmus, start_ns=NOW_NS)
    slots: dict[int, list[int]] = {0: [], 1: []}
    for now_ns in range(NOW_NS, NOW_NS + NS_PER_S + 1, 7_000_000):
        for measurement in schedule.take_due(now_ns):
            assert measurement.created_ns <= now_ns
            slots[measurement.pmu].append(measurement.slot)
    for pmu, count in ((0, 29), (1, 59)):
        first = slots[pmu][0]
        assert slots[pmu] == list(range(first, first + len(slots[pmu])))
        assert len(slots[pmu]) >= count


def test_missed_instants_are_made_up_for_within_a_bound() -> None:
    schedule = Schedule([Pmu("a/b/c", ("r",), THIRTY, ("frequency",))], start_ns=NOW_NS)
    assert len(schedule.take_due(NOW_NS + NS_PER_S)) == 30
    slept = schedule.take_due(NOW_NS + NS_PER_S + 3 * LATE_NS_MAX)
    assert len(slept) == pytest.approx(30 * LATE_NS_MAX / NS_PER_S, abs=2)
    assert schedule.progress[0].skipped > 0
    assert schedule.progress[0].newest_slot == slept[-1].slot


def test_the_next_instant_is_the_earliest_of_all() -> None:
    assert Schedule([], start_ns=NOW_NS).next_ns() is None
    pmus = [
        Pmu("a/b/c", ("r",), THIRTY, ("frequency",)),
        Pmu("a/b/d", ("r",), SIXTY, ("frequency",)),
    ]
    next_ns = Schedule(pmus, start_ns=NOW_NS).next_ns()
    assert next_ns is not None
    assert 0 < next_ns - NOW_NS <= NS_PER_S // 60 + 1


def deliveries(slots: list[int], *, every: int) -> Deliveries:
    found = Deliveries([Expectation(VOLTAGE, THIRTY, every)])
    for slot in slots:
        found.take(VOLTAGE, instant_ns(slot, THIRTY), value=float(slot))
    return found


def test_a_hole_between_deliveries_is_a_loss() -> None:
    assert deliveries([6, 9, 15, 18], every=3).lost == 1
    assert deliveries([6, 9, 12], every=3).lost == 0


def test_order_does_not_matter_to_the_ledger() -> None:
    found = deliveries([12, 6, 9], every=3)
    assert (found.lost, found.delivered) == (0, 3)
    assert found.tallies[VOLTAGE].newest_value == 12.0


def test_a_delivery_in_a_slot_nobody_subscribed_to_is_misplaced() -> None:
    found = deliveries([6, 7, 9], every=3)
    assert (found.misplaced, found.lost) == (1, 0)


def test_an_event_of_another_variable_is_nobodys() -> None:
    found = deliveries([6], every=3)
    found.take(VariableId(99), NOW_NS, value=0.0)
    assert found.delivered == 1


@given(st.integers(0, 10**6), st.integers(0, 200), st.integers(1, 40))
def test_slots_due_are_those_that_the_divisor_divides(first: int, count: int, every: int) -> None:
    last = first + count
    expected = sum(slot % every == 0 for slot in range(first, last + 1))
    assert slots_due(first, last, every=every) == expected
