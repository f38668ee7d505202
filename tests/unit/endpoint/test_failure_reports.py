"""Callbacks that raise are reported once a second each, with how many reports were left out."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.failure_reports import CALLBACKS_MAX, FailureReports
from gridstat.endpoint.options import EventHandlers, SubscriptionSpec
from gridstat.endpoint.subscriber import Subscription
from gridstat.model.qos import ModalQos
from tests.unit.endpoint.paper_grid import MS, PaperGrid, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.violation import Violation

VOLTAGE, CURRENT = variable(), variable("c1/b/v", 2)
SECOND = 1_000


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def fails(_: Delivery | Violation) -> None:
    raise RuntimeError("mine")


def fails_too(_: Delivery) -> None:
    raise RuntimeError("mine too")


def subscribe(grid: PaperGrid, handlers: EventHandlers, number: int = 1) -> Subscription:
    of = VOLTAGE if number == 1 else CURRENT
    grid.cloud.ready.append((granted(of, number),))
    (found,) = grid.book.subscribe([SubscriptionSpec(of.name, ModalQos(), handlers=handlers)])
    assert isinstance(found, Subscription), found
    return found


def reports(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]


def test_a_callback_that_raises_with_every_event_is_reported_once_a_second(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(grid, EventHandlers(on_event=fails))
    grid.send(VOLTAGE, *((10 * n, 1.0) for n in range(50)))
    assert reports(caplog) == ["on_event_failed name=c1/a/v"]
    assert caplog.records[0].exc_info is not None
    grid.send(VOLTAGE, (2 * SECOND, 1.0), (2 * SECOND + 10, 1.0))
    assert reports(caplog)[1:] == ["on_event_failed name=c1/a/v suppressed=49"]


def test_one_callback_of_many_subscriptions_is_reported_as_one(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(grid, EventHandlers(on_event=fails))
    subscribe(grid, EventHandlers(on_event=fails), 2)
    grid.send(VOLTAGE, (10, 1.0))
    grid.send(CURRENT, (10, 1.0))
    assert reports(caplog) == ["on_event_failed name=c1/a/v"]


def test_another_callback_is_not_hidden_by_the_first(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(grid, EventHandlers(on_event=fails))
    subscribe(grid, EventHandlers(on_event=fails_too), 2)
    grid.send(VOLTAGE, (10, 1.0), (20, 1.0))
    grid.send(CURRENT, (10, 1.0), (20, 1.0))
    assert reports(caplog) == ["on_event_failed name=c1/a/v", "on_event_failed name=c1/b/v"]


def test_violations_and_what_is_posted_are_reported_likewise(
    grid: PaperGrid, caplog: pytest.LogCaptureFixture
) -> None:
    subscribe(grid, EventHandlers(on_violation=fails))
    grid.wait_until(500)
    assert reports(caplog) == ["on_violation_failed name=c1/a/v"]
    caplog.clear()
    for _ in range(3):
        grid.deliverer.post(partial(fails_too, None))  # type: ignore[arg-type]
    grid.work()
    assert reports(caplog) == ["callback_failed"]


def test_what_was_left_out_is_told_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    grid = PaperGrid()
    subscribe(grid, EventHandlers(on_event=fails))
    grid.send(VOLTAGE, (10, 1.0), (20, 1.0), (30, 1.0))
    grid.close()
    grid.close()
    assert reports(caplog)[1:] == ["callback_failures_not_reported suppressed=2"]


def test_only_so_many_callbacks_are_kept_in_mind(caplog: pytest.LogCaptureFixture) -> None:
    found = FailureReports(lambda: 5 * MS)
    callbacks = [object() for _ in range(CALLBACKS_MAX + 1)]
    for callback in (*callbacks, callbacks[-1], callbacks[0]):
        found.report(callback, "failed")
    assert len(reports(caplog)) == CALLBACKS_MAX + 2
