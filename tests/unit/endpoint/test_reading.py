"""Reading by applications: streams from now on, one reader each, and losses of slow readers."""

from __future__ import annotations

import asyncio
import gc
import threading
from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.options import SubscriptionSpec
from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.subscription_dispatch import SubscriptionDispatch
from gridstat.model.errors import Misuse
from gridstat.model.qos import ModalQos
from gridstat.net.command.endpoint_messages import ReportLedger, Unpublished
from tests.unit.endpoint.paper_grid import PaperGrid, granted, variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.endpoint.subscriber import EventStream

VOLTAGE = variable()
WITHIN_S = 60.0


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(grid: PaperGrid, keep_events: int = 0) -> Subscription:
    grid.cloud.ready.append((granted(VOLTAGE),))
    (found,) = grid.book.subscribe(
        [SubscriptionSpec(VOLTAGE.name, ModalQos(), keep_events=keep_events)]
    )
    assert isinstance(found, Subscription), found
    return found


async def all_of(stream: EventStream) -> list[object]:
    return [event.value async for event in stream]


def test_a_stream_begins_when_it_is_asked_for_not_when_it_is_first_read(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    stream = voltage.events()
    grid.send(VOLTAGE, (100, 1.0), (110, 2.0))
    voltage.unsubscribe()
    assert asyncio.run(all_of(stream)) == [1.0, 2.0]


def test_a_stream_of_an_ended_subscription_ends_at_once(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    voltage.unsubscribe()
    assert asyncio.run(all_of(voltage.events())) == []


def test_the_end_of_a_subscription_while_a_stream_is_opened_is_not_missed(
    grid: PaperGrid, monkeypatch: pytest.MonkeyPatch
) -> None:
    voltage = subscribe(grid)

    class EndsMeanwhile(SubscriptionDispatch):
        """The subscription ends just before the stream is in its list."""

        def __setattr__(self, name: str, value: object) -> None:
            if name == "streams" and not voltage.is_over:
                voltage.end()
            super().__setattr__(name, value)

    monkeypatch.setattr(voltage.incoming, "__class__", EndsMeanwhile)
    assert asyncio.run(asyncio.wait_for(all_of(voltage.events()), WITHIN_S)) == []


def test_streams_that_threads_open_at_once_are_all_there(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    kept: list[EventStream] = []

    def open_some() -> None:
        kept.extend(voltage.events() for _ in range(200))

    threads = [threading.Thread(target=open_some) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(voltage.incoming.streams) == 800


def test_a_stream_that_is_closed_or_forgotten_keeps_nothing_more(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    closed, forgotten = voltage.events(), voltage.events()
    asyncio.run(closed.aclose())
    assert len(voltage.incoming.streams) == 1
    del forgotten
    gc.collect()
    assert not len(voltage.incoming.streams)
    assert asyncio.run(all_of(closed)) == []


def test_a_second_reader_of_a_stream_is_told_so(grid: PaperGrid) -> None:
    voltage = subscribe(grid)
    stream = voltage.events()

    async def read_twice() -> None:
        first = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        with pytest.raises(Misuse, match="at the same time") as refused:
            await anext(stream)
        assert "events()" in refused.value.hint
        grid.send(VOLTAGE, (100, 1.0))
        assert (await first).value == 1.0

    asyncio.run(read_twice())


def test_a_second_reader_of_batches_is_told_so_and_the_first_reads_on(grid: PaperGrid) -> None:
    voltage = subscribe(grid, keep_events=10)

    async def read_twice() -> None:
        batches = voltage.batches()
        first = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0)
        with pytest.raises(Misuse, match="at the same time"):
            voltage.read(timeout_s=None)
        grid.send(VOLTAGE, (100, 1.0))
        assert len(await first) == 1
        await batches.aclose()

    asyncio.run(read_twice())
    assert len(voltage.read()) == 0


def test_what_slow_readers_lose_is_counted_for_good(grid: PaperGrid) -> None:
    voltage = subscribe(grid, keep_events=3)
    stream = voltage.events(2)
    grid.send(VOLTAGE, *((100 + 10 * n, float(n)) for n in range(5)))
    assert stream.dropped == 3
    assert voltage.dropped == 3 + 2
    assert voltage.read()["value"].view("float64").tolist() == [2.0, 3.0, 4.0]
    del stream
    gc.collect()
    assert (voltage.dropped, grid.book.dropped) == (5, 5)
    assert voltage.ledger().dropped == 5
    grid.book.report()
    report = grid.cloud.asked[-1]
    assert isinstance(report, ReportLedger)
    assert [entry.dropped for entry in report.entries] == [5]
    grid.book.notice_received(Unpublished(subscription_id=1, name=VOLTAGE.name), ())
    assert (voltage.dropped, grid.book.dropped) == (5, 5)


@pytest.mark.parametrize("timeout_s", [float("inf"), float("nan"), 1e300])
def test_a_wait_that_no_clock_can_hold_is_refused(grid: PaperGrid, timeout_s: float) -> None:
    voltage = subscribe(grid, keep_events=8)
    with pytest.raises(Misuse, match="timeout_s"):
        voltage.read(timeout_s=timeout_s)
    assert len(voltage.read(timeout_s=-0.5)) == 0, "a time that is over is no mistake"
