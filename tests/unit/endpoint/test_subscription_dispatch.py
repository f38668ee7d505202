"""Dispatch of samples to holder, callbacks, streams and violations."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from gridstat.core.samples import SAMPLE
from gridstat.endpoint.options import EventHandlers, SubscriptionSpec
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.violation import Reason, Violation
from gridstat.model.errors import Misuse
from gridstat.model.extrapolation import Polynomial, UserExtrapolation
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.model.status import BuiltinType, EventFlag, TimeQuality
from gridstat.net.codec.value import ValueCodec
from tests.unit.endpoint.paper_grid import MS, WALL_AHEAD_NS, PaperGrid, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.delivery import Delivery
    from gridstat.model.status import StatusVariable

VOLTAGE = variable()


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(
    grid: PaperGrid, of: StatusVariable = VOLTAGE, *, every: int = 1, **handlers: Any
) -> Subscription:
    grid.clock.steady = max(grid.clock.steady, 98 * MS)  # The first event is stamped 100.
    grid.cloud.ready.append((granted(of, every=every),))
    order = SubscriptionSpec(of.name, ModalQos(), handlers=EventHandlers(**handlers))
    (found,) = grid.book.subscribe([order])
    assert isinstance(found, Subscription), found
    return found


@pytest.mark.feature("S0-36", "S0-40")
def test_a_holder_tells_all_there_is_to_know(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    assert (voltage.value, voltage.created_ns, voltage.latency_us) == (None, 0, 0.0)
    grid.send(VOLTAGE, (100, 231.4), (120, 231.6), (110, 231.5))
    assert voltage.value == 231.6
    assert voltage.created_ns == 120 * MS + WALL_AHEAD_NS
    assert voltage.received_ns == 122 * MS + WALL_AHEAD_NS
    assert voltage.latency_us == 2_000
    assert not voltage.is_extrapolated
    assert not voltage.is_cached
    assert voltage.name == "c1/a/v"
    assert voltage.variable == VOLTAGE
    assert voltage.error_code == 0


@pytest.mark.feature("S0-40")
def test_a_snapshot_does_not_follow_the_live_one(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    grid.send(VOLTAGE, (100, 1.0))
    before = voltage.snapshot()
    grid.send(VOLTAGE, (110, 2.0))
    assert before.newest is not None
    assert before.newest.value == 1.0
    assert before.contract.granted[0].every == 1


@pytest.mark.feature("S0-37", "S1-6")
def test_a_callback_is_made_once_for_each_event(grid: PaperGrid) -> None:
    seen: list[Delivery] = []
    subscribe(grid, on_event=seen.append)
    grid.send(VOLTAGE, (100, 1.0), (110, 2.0))
    grid.send(VOLTAGE, (120, 3.0))
    assert [each.value for each in seen] == [1.0, 2.0, 3.0]


@pytest.mark.feature("S0-37")
def test_a_callback_with_two_parameters_hears_the_delay(grid: PaperGrid) -> None:
    delays: list[float] = []
    subscribe(grid, on_event=lambda _event, delay_us: delays.append(delay_us))
    grid.send(VOLTAGE, (100, 1.0), latency_ms=7)
    assert delays == [7_000.0]


def test_a_callback_that_fails_is_called_again(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Delivery] = []

    def fail(event: Delivery) -> None:
        calls.append(event)
        raise RuntimeError

    subscribe(grid, on_event=fail)
    with caplog.at_level(logging.ERROR):
        grid.send(VOLTAGE, (100, 1.0), (110, 2.0))
    assert len(calls) == 2
    assert "on_event_failed name=c1/a/v" in caplog.text


@pytest.mark.feature("S0-38", "S1-6")
def test_a_publisher_that_stops_is_noticed_after_interval_and_latency(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    subscribe(grid, on_violation=seen.append)
    grid.wait_until(90)
    grid.send(VOLTAGE, (100, 1.0))
    grid.wait_until(129)
    assert seen == []
    grid.wait_until(130)
    expected_ns = 110 * MS + WALL_AHEAD_NS
    assert seen == [Violation("c1/a/v", expected_ns // (10 * MS), expected_ns, Reason.MISSING)]
    grid.wait_until(150)
    assert len(seen) == 3


def test_a_late_event_is_told_once_with_what_came(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    subscribe(grid, on_violation=seen.append)
    grid.send(VOLTAGE, (100, 1.0))
    grid.wait_until(130)
    grid.send(VOLTAGE, (110, 2.0), latency_ms=25)
    assert [each.reason for each in seen] == [Reason.MISSING]
    grid.send(VOLTAGE, (120, 3.0), latency_ms=19)
    grid.send(VOLTAGE, (130, 4.0), latency_ms=21)
    assert [each.reason for each in seen] == [Reason.MISSING, Reason.LATE]
    assert seen[-1].delivery is not None
    assert seen[-1].delivery.value == 4.0


def test_a_stamp_that_is_not_good_makes_nothing_late(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    subscribe(grid, on_violation=seen.append)
    grid.send(VOLTAGE, (100, 1.0), latency_ms=500, flags=TimeQuality.BAD)
    assert seen == []


def test_nothing_is_held_against_the_cloud_while_modes_change(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    subscribe(grid, on_violation=seen.append)
    grid.send(VOLTAGE, (100, 1.0))
    grid.book.set_modes(1, next_modes=4)
    grid.wait_until(500)
    assert seen == []
    grid.book.set_modes(4)
    grid.wait_until(530)
    assert [each.reason for each in seen] == [Reason.MISSING] * 3


@pytest.mark.feature("S0-126")
def test_extrapolation_takes_the_place_of_a_violation(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    events: list[Delivery] = []
    voltage = subscribe(
        grid,
        extrapolate=Polynomial(order=1, points=3),
        on_violation=seen.append,
        on_event=events.append,
    )
    grid.send(VOLTAGE, (100, 1.0), (110, 2.0), (120, 3.0))
    assert not events[-1].is_extrapolated
    grid.wait_until(160)
    assert seen == []
    assert voltage.is_extrapolated
    assert [each.is_extrapolated for each in events] == [False] * 3 + [True] * 2
    assert [each.value for each in events] == pytest.approx([1.0, 2.0, 3.0, 4.0, 5.0])
    assert voltage.created_ns == 140 * MS + WALL_AHEAD_NS
    grid.send(VOLTAGE, (150, 9.0))
    assert (voltage.value, voltage.is_extrapolated) == (9.0, False)
    assert voltage.ledger().extrapolated == 2


@pytest.mark.feature("S0-126")
def test_a_late_real_value_takes_the_place_of_the_guess(grid: PaperGrid) -> None:
    voltage = subscribe(grid, extrapolate=Polynomial(order=1, points=3))
    grid.send(VOLTAGE, (100, 1.0), (110, 2.0))
    grid.wait_until(140)
    assert voltage.is_extrapolated
    grid.send(VOLTAGE, (120, 7.0), latency_ms=25)
    assert (voltage.value, voltage.is_extrapolated) == (7.0, False)


def test_whole_numbers_are_extrapolated_to_whole_numbers(grid: PaperGrid) -> None:
    count = variable(value_type=BuiltinType.INT64)
    found = subscribe(grid, count, extrapolate=Polynomial(order=1, points=2))
    grid.send(count, (100, 1), (110, 2))
    grid.wait_until(140)
    assert found.value == 3
    assert type(found.value) is int


@pytest.mark.feature("S0-125")
def test_a_function_of_the_user_that_fails_ends_in_a_violation(grid: PaperGrid) -> None:
    seen: list[Violation] = []
    how = UserExtrapolation(lambda *_: 1 / 0)
    voltage = subscribe(grid, extrapolate=how, on_violation=seen.append)
    grid.send(VOLTAGE, (100, 1.0))
    grid.wait_until(130)
    assert len(seen) == 1
    assert not voltage.is_extrapolated


@pytest.mark.parametrize(
    "of",
    [
        variable(value_type=BuiltinType.BOOL),
        variable(period=None),
    ],
)
def test_what_cannot_be_extrapolated_is_refused_and_given_back(
    grid: PaperGrid, of: StatusVariable
) -> None:
    grid.cloud.ready.append((granted(of),))
    order = SubscriptionSpec(of.name, ModalQos(), handlers=EventHandlers(extrapolate=Polynomial()))
    (found,) = grid.book.subscribe([order])
    assert isinstance(found, Misuse)
    assert type(grid.cloud.asked[-1]).__name__ == "Unsubscribe"
    assert grid.receiver.expected == {}


@pytest.mark.feature("S0-39")
def test_three_subscriptions_may_have_three_styles(grid: PaperGrid) -> None:
    variables = [variable(f"c1/a/{name}", number) for number, name in enumerate("xyz", start=1)]
    pushed: list[Delivery] = []
    violated: list[Violation] = []
    pull = subscribe(grid, variables[0])
    subscribe(grid, variables[1], on_event=pushed.append)
    subscribe(grid, variables[2], on_violation=violated.append)
    for of in variables:
        grid.send(of, (100, 1.0))
    grid.wait_until(130)
    assert pull.value == 1.0
    assert len(pushed) == 1
    assert [each.name for each in violated] == ["c1/a/z"]


def test_events_of_another_layout_are_counted_and_passed_over(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    wide = variable("c1/a/v", 1)
    grid.deliverer.deliver(*_wide_batch(grid, wide))
    assert voltage.incoming.malformed == 1
    assert voltage.value is None


def _wide_batch(grid: PaperGrid, of: StatusVariable) -> Any:
    batch = np.array([(1, 2, of.variable_id, 1, 0, 0, 5)], SAMPLE)
    return batch, bytes(24), grid.arrival()


def test_a_slower_subscription_of_the_same_variable_gets_only_its_slots(grid: PaperGrid) -> None:
    fast: list[Delivery] = []
    slow: list[Delivery] = []
    subscribe(grid, on_event=fast.append)
    grid.cloud.ready.append((granted(VOLTAGE, 2, every=3),))
    order = SubscriptionSpec(VOLTAGE.name, ModalQos(), handlers=EventHandlers(on_event=slow.append))
    (second,) = grid.book.subscribe([order])
    assert isinstance(second, Subscription)
    first_slot = WALL_AHEAD_NS // (10 * MS)
    grid.send(VOLTAGE, *((100 + 10 * n, float(n)) for n in range(12)))
    due = [float(n) for n in range(12) if (first_slot + 10 + n) % 3 == 0]
    assert len(fast) == 12
    assert [each.value for each in slow] == due
    assert second.ledger().delivered == len(due)
    assert grid.receiver.expected == {1: (Period(1, 100), 1)}


def test_a_slower_subscription_that_came_first_gets_only_its_slots(grid: PaperGrid) -> None:
    slow: list[Delivery] = []
    fast: list[Delivery] = []
    first = subscribe(grid, every=3, on_event=slow.append)
    grid.cloud.ready.append((granted(VOLTAGE, 2),))
    order = SubscriptionSpec(VOLTAGE.name, ModalQos(), handlers=EventHandlers(on_event=fast.append))
    grid.book.subscribe([order])
    first_slot = WALL_AHEAD_NS // (10 * MS)
    grid.send(VOLTAGE, *((100 + 10 * n, float(n)) for n in range(100)))
    due = [float(n) for n in range(100) if (first_slot + 10 + n) % 3 == 0]
    assert len(fast) == 100
    assert [each.value for each in slow] == due
    assert first.value == due[-1]
    assert first.ledger().delivered == len(due)


def test_a_second_subscription_makes_no_live_value_of_the_first_a_kept_one(
    grid: PaperGrid,
) -> None:
    first = subscribe(grid, every=3)
    start = -(WALL_AHEAD_NS // (10 * MS)) % 3 * 10 + 300
    grid.send(VOLTAGE, (start, 1.0))
    for created_ms in (start, start + 10):  # The second is not due to the first subscription.
        row = (created_ms * MS + WALL_AHEAD_NS, 10**18, 1, 0, int(EventFlag.CACHED), 0, 0)
        assert not first.incoming.hold(row, b"")
    assert not first.is_cached
    assert first.latency_us == 2_000


def test_a_contract_over_which_nothing_ever_comes_is_violated(grid: PaperGrid) -> None:
    violated: list[Violation] = []
    voltage = subscribe(grid, on_violation=violated.append)
    grid.wait_until(3_000)
    assert [each.reason for each in violated] == [Reason.MISSING] * len(violated)
    assert len(violated) == 288
    assert voltage.ledger().lost > 150


@pytest.mark.parametrize("problem", [ValueError("mine"), None])
def test_an_extrapolation_of_the_users_that_fails_in_any_way_ends_in_violations(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture, problem: Exception | None
) -> None:
    def mine(_times: object, _values: object, _at: int) -> float:
        if problem is not None:
            raise problem
        return None  # type: ignore[return-value]

    violated: list[Violation] = []
    voltage = subscribe(grid, on_violation=violated.append, extrapolate=UserExtrapolation(mine))
    grid.send(VOLTAGE, (100, 1.0))
    with caplog.at_level(logging.ERROR):
        grid.wait_until(400)
    assert (len(violated), voltage.ledger().extrapolated) == (28, 0)
    assert len([each for each in caplog.records if "extrapolation_failed" in each.message]) == 1


def test_terms_that_become_faster_are_watched_from_then_on(grid: PaperGrid) -> None:
    violated: list[Violation] = []
    voltage = subscribe(grid, every=6_000, on_violation=violated.append)
    grid.cloud.ready.append((granted(VOLTAGE),))
    voltage.change(QosRequest(every=1))
    grid.wait_until(200)
    assert len(violated) >= 5


def test_an_event_that_an_edge_had_kept_is_extrapolated_from_until_the_first_comes(
    grid: PaperGrid,
) -> None:
    voltage = subscribe(grid, extrapolate=Polynomial(order=1, points=4))
    word = int.from_bytes(ValueCodec(VOLTAGE).encode(7.0)[:8], "big", signed=True)
    row = (90 * MS + WALL_AHEAD_NS, 10**18, 1, 0, int(EventFlag.CACHED), 0, word)
    assert voltage.incoming.hold(row, b"")
    grid.wait_until(150)
    assert voltage.is_extrapolated
    assert voltage.value == 7.0
