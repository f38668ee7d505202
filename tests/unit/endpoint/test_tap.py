"""A tap gets everything at once and knows the terms before; ledgers count the same, later."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.core.samples import SAMPLE
from gridstat.endpoint.arrival_clock import Arrival
from gridstat.endpoint.options import SubscriptionSpec
from gridstat.endpoint.session_events import SubscriptionRestored
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.tap import BUFFER_NS, BUFFERED_EVENTS_MAX, TapBuffer
from gridstat.model.qos import ModalQos
from gridstat.net.command.endpoint_messages import ContractChanged, Unpublished
from tests.unit.endpoint.paper_grid import HUNDREDTH, MS, PaperGrid, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.core.samples import Samples
    from gridstat.model.status import StatusVariable


class Tapped:
    """Tap that records its calls, in order."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.ended: list[tuple[str, int, int]] = []
        self.taken: list[tuple[int, bytes]] = []

    def begin(self, of: StatusVariable, every: int, subscription_id: int) -> None:
        self.begun.append((of.name, every, subscription_id))

    def end(self, of: StatusVariable, every: int, subscription_id: int) -> None:
        self.ended.append((of.name, every, subscription_id))

    def take(self, batch: Samples, options: bytes) -> None:
        self.taken.append((len(batch), options))


class Gathered:
    """A gathering between a tap and a recorder of its output."""

    def __init__(self) -> None:
        self.tapped = Tapped()
        self.handed: list[tuple[int, bytes, Arrival]] = []
        self.now_ns = 0
        self.meanwhile: list[int] = []
        """Numbers of events that come while others are handed out."""
        self.gathering = TapBuffer(self.tapped, self._deliver, lambda: self.now_ns)

    def due(self) -> int | None:
        return self.gathering.next_due_ns

    def _deliver(self, batch: Samples, options: bytes, arrival: Arrival) -> None:
        self.handed.append((len(batch), options, arrival))
        for count in self.meanwhile:
            self.now_ns += BUFFER_NS
            self.gathering.add(events(count), b"", Arrival(self.now_ns, self.now_ns))
        self.meanwhile.clear()


def events(count: int) -> Samples:
    return np.zeros(count, SAMPLE)


def test_batches_pass_the_tap_at_once_and_are_handed_out_together() -> None:
    found = Gathered()
    found.gathering.add(events(3), b"abc", Arrival(10, 1_010))
    found.gathering.add(events(2), b"d", Arrival(20, 1_020))
    assert found.tapped.taken == [(3, b"abc"), (2, b"d")]
    assert found.handed == []
    assert found.due() == 10 + BUFFER_NS
    found.gathering.fire(Arrival(30, 1_030))
    assert found.handed == [(5, b"abcd", Arrival(20, 1_020))]
    assert found.due() is None


def test_many_events_are_handed_out_before_their_time() -> None:
    found = Gathered()
    found.gathering.add(events(BUFFERED_EVENTS_MAX), b"", Arrival(10, 1_010))
    assert [each[0] for each in found.handed] == [BUFFERED_EVENTS_MAX]


@pytest.mark.parametrize("after", [(900, 0), (10**10, 0), (1_020, 5)])
def test_what_came_before_the_clock_was_set_is_told_by_the_clock_of_then(
    after: tuple[int, int],
) -> None:
    found = Gathered()
    before = Arrival(10, 1_010 * MS)
    later = Arrival(20, after[0] * MS, after[1])
    for arrival in (before, before, later):
        found.gathering.add(events(2), b"", arrival)
    found.gathering.hand_out()
    assert found.handed == [(4, b"", before), (2, b"", later)]


def test_what_comes_while_others_are_handed_out_passes_the_tap_and_waits() -> None:
    found = Gathered()
    found.gathering.add(events(3), b"", Arrival(10, 10))
    found.gathering.emptied_ns = 12
    assert found.gathering.caught_up_ns == 0
    found.meanwhile += [2, BUFFERED_EVENTS_MAX]
    found.gathering.hand_out()
    assert [count for count, _ in found.tapped.taken] == [3, 2, BUFFERED_EVENTS_MAX]
    assert [count for count, _, _ in found.handed] == [3]
    assert found.gathering.caught_up_ns == 12
    assert found.gathering.next_due_ns == found.now_ns + 4 * BUFFER_NS
    found.gathering.emptied_ns = 15
    found.gathering.hand_out()
    assert [count for count, _, _ in found.handed] == [3, 2 + BUFFERED_EVENTS_MAX]
    assert found.gathering.caught_up_ns == 15


def test_a_tap_that_fails_costs_the_subscriptions_nothing(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(batch: Samples, options: bytes) -> None:
        raise RuntimeError("no tap")

    found = Gathered()
    monkeypatch.setattr(found.tapped, "take", fail)
    found.gathering.add(events(3), b"", Arrival(10, 1_010))
    found.gathering.fire(Arrival(20, 1_020))
    assert [each[0] for each in found.handed] == [3]
    assert "tap_failed" in caplog.text


@contextmanager
def tapped_grid() -> Iterator[tuple[PaperGrid, Tapped]]:
    grid, tapped = PaperGrid(), Tapped()
    grid.listening.set_tap(tapped)
    try:
        yield grid, tapped
    finally:
        grid.close()


def test_a_tap_hears_of_terms_when_they_begin_and_when_they_change() -> None:
    with tapped_grid() as (grid, tapped):
        of = variable(period=HUNDREDTH)
        grid.cloud.ready.append((granted(of, 7, every=2),))
        grid.book.subscribe([SubscriptionSpec(of.name, ModalQos())])
        assert tapped.begun == [(of.name, 2, 7)]
        grid.book.notice_received(ContractChanged(granted(of, 7, every=5)), ())
        grid.work()
        grid.book.notice_received(ContractChanged(granted(of, 7, every=5)), ())
        grid.work()
        assert tapped.begun == [(of.name, 2, 7), (of.name, 5, 7)]


def test_a_tap_hears_of_a_contract_that_is_granted_again_on_the_same_terms() -> None:
    with tapped_grid() as (grid, tapped):
        of = variable(period=HUNDREDTH)
        grid.cloud.ready.append((granted(of, 7),))
        (held,) = grid.book.subscribe([SubscriptionSpec(of.name, ModalQos())])
        assert isinstance(held, Subscription)
        grid.book.restored(SubscriptionRestored(held.label, granted(of, 8), ()))
        grid.work()
        assert tapped.begun == [(of.name, 1, 7), (of.name, 1, 8)]
        assert tapped.ended == []


def test_a_tap_hears_of_an_end_when_it_is_told_and_who_else_goes_on() -> None:
    with tapped_grid() as (grid, tapped):
        of = variable(period=HUNDREDTH)
        for number in (7, 8):
            grid.cloud.ready.append((granted(of, number, every=2),))
            grid.book.subscribe([SubscriptionSpec(of.name, ModalQos())])
        tapped.begun.clear()
        grid.book.notice_received(Unpublished(subscription_id=8, name=of.name), ())
        assert (tapped.ended, tapped.begun) == ([(of.name, 2, 8)], [(of.name, 2, 7)])
        grid.book.notice_received(Unpublished(subscription_id=7, name=of.name), ())
        assert (tapped.ended[1:], tapped.begun[1:]) == ([(of.name, 2, 7)], [])


def test_a_tap_hears_of_the_end_of_all_when_the_connection_ends() -> None:
    with tapped_grid() as (grid, tapped):
        of = variable(period=HUNDREDTH)
        grid.cloud.ready.append((granted(of, 7),))
        grid.book.subscribe([SubscriptionSpec(of.name, ModalQos())])
        grid.book.end()
        assert tapped.ended == [(of.name, 1, 7)]
