"""Changes wait together, none longer than the first one's ten milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gridstat.model.identifiers import VariableId
from gridstat.router import CommitQueue

MS = 1_000_000
A, B = VariableId(1), VariableId(2)


@dataclass
class HandClock:
    """A clock that moves when it is told to."""

    now_ns: int = 0

    def __call__(self) -> int:
        return self.now_ns


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
def queue(clock: HandClock) -> CommitQueue:
    return CommitQueue(clock)


def test_nothing_is_due_without_a_change(queue: CommitQueue) -> None:
    queue.touch(())
    assert queue.wait_ns() is None
    assert queue.take_due() == frozenset()


def test_changes_within_the_wait_are_one_commit(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    clock.now_ns = 9 * MS
    queue.touch([B, A])
    assert queue.take_due() == frozenset()
    clock.now_ns = 10 * MS
    assert queue.take_due() == {A, B}
    assert queue.wait_ns() is None


def test_a_later_change_does_not_prolong_the_wait(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    clock.now_ns = 6 * MS
    queue.touch([B])
    assert queue.wait_ns() == 4 * MS


def test_a_change_after_a_commit_waits_anew(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    clock.now_ns = 50 * MS
    assert queue.take_due() == {A}
    queue.touch([A])
    assert queue.wait_ns() == 10 * MS


def test_everything_can_be_taken_at_once(queue: CommitQueue) -> None:
    queue.touch([A, B])
    assert queue.take_all() == {A, B}
    assert queue.take_all() == frozenset()
