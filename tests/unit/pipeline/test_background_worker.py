"""Work beside the batches: one piece at a time, and no failure goes unheard."""

from __future__ import annotations

import threading
import time

import pytest

from gridstat.pipeline.background_worker import BackgroundWorker


def test_one_piece_at_a_time() -> None:
    beside, may_end = BackgroundWorker("test"), threading.Event()
    done: list[str] = []

    def first() -> None:
        may_end.wait(60)
        done.append("first")

    assert beside.offer(first)
    assert beside.is_busy
    assert not beside.offer(lambda: done.append("second"))
    may_end.set()
    beside.wait()
    assert done == ["first"]
    assert beside.offer(lambda: done.append("third"))
    beside.wait()
    assert done == ["first", "third"]


def test_a_failure_is_told_once_to_whoever_comes_next() -> None:
    beside = BackgroundWorker("test")
    beside.offer(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        beside.wait()
    beside.wait()
    beside.offer(lambda: 1 // 0)
    while beside.is_busy:
        time.sleep(0.001)
    began: list[int] = []
    with pytest.raises(ZeroDivisionError):
        beside.offer(lambda: began.append(1))
    assert began == []


def test_what_is_no_common_error_is_told_as_well() -> None:
    """A panic of a library is none, and a piece that fails unheard is tried for ever."""

    def panic() -> None:
        raise KeyboardInterrupt

    beside = BackgroundWorker("test")
    beside.offer(panic)
    while beside.is_busy:
        time.sleep(0.001)
    with pytest.raises(KeyboardInterrupt):
        beside.check()
    beside.check()


def test_one_thread_may_offer_while_another_waits() -> None:
    """The batches offer, and the main thread looks on: once it met a thread not yet started."""
    beside, is_over = BackgroundWorker("test"), threading.Event()
    at_work, most, done = 0, 0, 0
    complaints: list[Exception] = []

    def work() -> None:
        nonlocal at_work, most, done
        at_work += 1
        most = max(most, at_work)
        at_work -= 1
        done += 1

    def look_on() -> None:
        try:
            while not is_over.is_set():
                if not beside.is_busy:
                    beside.wait()
        except Exception as error:
            complaints.append(error)

    watchers = [threading.Thread(target=look_on) for _ in range(2)]
    for each in watchers:
        each.start()
    begun = sum(beside.offer(work) for _ in range(2_000))
    is_over.set()
    for each in watchers:
        each.join()
    beside.wait()
    assert complaints == []
    assert (most, done) == (1, begun)
