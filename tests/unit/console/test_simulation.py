"""Simulated PMUs measure in every slot once; a subscriber's ledger finds every hole."""

from __future__ import annotations

from functools import partial

from hypothesis import given
from hypothesis import strategies as st

from gridstat.console.grid import Pmu
from gridstat.console.simulation.deliveries import Deliveries, Expectation, slots_due
from gridstat.console.simulation.schedule import (
    GAPS_MAX,
    LATE_NS_MAX,
    Progress,
    Schedule,
    instant_ns,
)
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
        for measurement in schedule.take_due(partial(int, now_ns)):
            assert measurement.created_ns <= now_ns
            slots[measurement.pmu].append(measurement.slot)
    for pmu, count in ((0, 29), (1, 59)):
        first = slots[pmu][0]
        assert slots[pmu] == list(range(first, first + len(slots[pmu])))
        assert len(slots[pmu]) >= count


def lone_schedule() -> Schedule:
    return Schedule([Pmu("a/b/c", ("r",), THIRTY, ("frequency",))], start_ns=NOW_NS)


def take_slots(schedule: Schedule, *instants_ns: int) -> list[int]:
    """Take what is due; the clock shows one instant after the other, and stays at the last."""
    left = list(instants_ns)
    return [
        each.slot for each in schedule.take_due(lambda: left.pop(0) if len(left) > 1 else left[0])
    ]


def test_a_schedule_that_was_held_up_leaves_out_the_slots_that_routers_would_drop() -> None:
    schedule = lone_schedule()
    [first] = take_slots(schedule, NOW_NS + NS_PER_S // 30)
    now_ns = NOW_NS + NS_PER_S // 30 + 300_000_000
    taken = take_slots(schedule, now_ns)
    progress = schedule.progress[0]
    left_out = [slot for low, high in progress.gaps for slot in range(low, high + 1)]
    assert [first, *left_out, *taken] == list(range(first, taken[-1] + 1))
    assert all(now_ns - instant_ns(slot, THIRTY) <= LATE_NS_MAX for slot in taken)
    assert all(now_ns - instant_ns(slot, THIRTY) > LATE_NS_MAX for slot in left_out)
    assert progress.left_out == len(left_out) > 0
    assert (progress.first_slot, progress.newest_slot) == (first, taken[-1])


def test_a_slot_that_becomes_too_old_between_two_frames_is_left_out_too() -> None:
    schedule = Schedule(
        [Pmu(f"a/b/{name}", ("r",), THIRTY, ("frequency",)) for name in "cd"], start_ns=NOW_NS
    )
    due_ns = NOW_NS + NS_PER_S // 30
    taken = take_slots(schedule, due_ns, due_ns, due_ns + 300_000_000)
    assert len(taken) == 1
    assert [progress.left_out for progress in schedule.progress] == [0, 1]
    assert schedule.progress[1].first_slot is None


def test_adjoining_gaps_are_one_and_only_the_newest_are_known_by_their_slots() -> None:
    progress = Progress()
    progress.leave_out(1, 3)
    progress.leave_out(4, 4)
    assert list(progress.gaps) == [(1, 4)]
    for slot in range(10, 10 + 2 * GAPS_MAX, 2):
        progress.leave_out(slot, slot)
    assert len(progress.gaps) == GAPS_MAX
    assert progress.gaps[0] == (10, 10)
    assert progress.left_out == 4 + GAPS_MAX


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
