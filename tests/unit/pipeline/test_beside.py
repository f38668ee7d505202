"""Work beside the batches: one piece at a time, and no failure goes unheard."""

from __future__ import annotations

import threading
import time

import pytest

from gridstat.pipeline.beside import Beside


def test_one_piece_at_a_time() -> None:
    beside, may_end = Beside("test"), threading.Event()
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
    beside = Beside("test")
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
