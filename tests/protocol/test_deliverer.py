"""The delivering thread between the real receiver and takers."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING

import numpy as np
import pytest

from gridstat.core import _ends
from gridstat.endpoint.deliverer import Deliverer
from gridstat.model.status import OPTION_BYTES
from gridstat.net.clock import SystemClock
from tests.cluster.eventually import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.core.samples import Samples
    from gridstat.endpoint.arrival_clock import Arrival
    from gridstat.endpoint.delivery import Row


class Listing:
    """A taker that lists what it is given."""

    def __init__(self, *, fails: bool = False) -> None:
        self.values: list[int] = []
        self.options: list[bytes] = []
        self.fired: list[int] = []
        self.next_due_ns: int | None = None
        self._fails = fails

    def take(self, batch: Samples, options: list[bytes], _arrival: Arrival) -> None:
        if self._fails:
            raise RuntimeError
        self.values += batch["value"].tolist()
        self.options += options

    def hold(self, _row: Row, _options: bytes) -> bool:
        return True

    def fire(self, arrival: Arrival) -> None:
        self.next_due_ns = None
        self.fired.append(arrival.steady_ns)


@pytest.fixture
def receiver() -> Iterator[_ends.Receiver]:
    made = _ends.Receiver(option_bytes=1 << 16)
    made.start()
    yield made
    made.close()


@pytest.fixture
def deliverer(receiver: _ends.Receiver) -> Iterator[Deliverer]:
    made = Deliverer(receiver, SystemClock())
    made.start()
    yield made
    made.close()


@pytest.fixture
def sender(receiver: _ends.Receiver) -> Iterator[_ends.Sender]:
    with _ends.Sender(1, ("127.0.0.1", *receiver.ports)) as made:
        yield made


def listening(receiver: _ends.Receiver, deliverer: Deliverer, variable_id: int) -> Listing:
    taker = Listing()
    receiver.expect(variable_id, None)
    deliverer.add(variable_id, taker)
    return taker


def becomes(found: list[int], expected: list[int]) -> None:
    eventually(lambda: None if found == expected else f"{found}, not {expected}")


def test_events_go_to_the_takers_of_their_variable(
    receiver: _ends.Receiver, deliverer: Deliverer, sender: _ends.Sender
) -> None:
    first, second = (listening(receiver, deliverer, number) for number in (1, 2))
    ids = np.array([1, 2, 1, 2, 1], np.uint32)
    sender.send_many(ids, np.arange(5), np.arange(1, 6, dtype=np.uint64))
    becomes(first.values, [0, 2, 4])
    becomes(second.values, [1, 3])


def test_options_stay_with_their_events(
    receiver: _ends.Receiver, deliverer: Deliverer, sender: _ends.Sender
) -> None:
    first, second = (listening(receiver, deliverer, number) for number in (1, 2))
    options = np.arange(4, dtype=np.uint8).repeat(OPTION_BYTES).reshape(4, OPTION_BYTES)
    ids = np.array([1, 2, 1, 2], np.uint32)
    sender.send_many(ids, np.arange(4), np.arange(1, 5, dtype=np.uint64), options=options)
    becomes(second.values, [1, 3])
    becomes(first.values, [0, 2])
    assert [part[0] for part in first.options] == [0, 2]
    assert [part[0] for part in second.options] == [1, 3]


def test_a_taker_that_fails_leaves_the_others_alone(
    receiver: _ends.Receiver,
    deliverer: Deliverer,
    sender: _ends.Sender,
    caplog: pytest.LogCaptureFixture,
) -> None:
    good = listening(receiver, deliverer, 1)
    deliverer.add(1, Listing(fails=True))
    with caplog.at_level(logging.ERROR):
        sender.send(1, 7)
        becomes(good.values, [7])
        sender.send(1, 8)
        becomes(good.values, [7, 8])
    assert "taker_failed" in caplog.text


def test_what_is_posted_and_what_is_due_wakes_the_thread(deliverer: Deliverer) -> None:
    names: list[str] = []
    deliverer.post(lambda: names.append(threading.current_thread().name))
    eventually(lambda: None if names else "nothing ran")
    timed = Listing()
    timed.next_due_ns = SystemClock().steady_ns() + 50_000_000
    due_ns = timed.next_due_ns
    deliverer.watch(timed)
    deliverer.post(lambda: deliverer.reschedule(timed))
    eventually(lambda: None if timed.fired else "nothing was fired")
    assert timed.fired[0] >= due_ns
    done = threading.Event()
    deliverer.later(SystemClock().steady_ns(), done.set)
    assert done.wait(30)
    assert names == ["gs-delivery"]


def test_what_is_posted_and_fails_does_not_end_the_thread(
    deliverer: Deliverer, caplog: pytest.LogCaptureFixture
) -> None:
    done = threading.Event()
    with caplog.at_level(logging.ERROR):
        deliverer.post(lambda: 1 / 0)
        deliverer.post(done.set)
        assert done.wait(30)
    assert "callback_failed" in caplog.text


def test_a_taker_may_close_the_deliverer(receiver: _ends.Receiver, sender: _ends.Sender) -> None:
    deliverer = Deliverer(receiver, SystemClock())
    closed = threading.Event()

    class Closing(Listing):
        def take(self, batch: Samples, options: list[bytes], arrival: Arrival) -> None:
            super().take(batch, options, arrival)
            deliverer.close()
            receiver.close()
            closed.set()

    receiver.expect(1, None)
    deliverer.add(1, Closing())
    deliverer.start()
    sender.send(1, 7)
    assert closed.wait(30)
