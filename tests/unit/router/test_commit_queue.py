"""A lone change is committed at once; a flood waits together, never longer than 10 ms."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gridstat.model.identifiers import VariableId
from gridstat.router import CommitQueue

MS = 1_000_000
A, B = VariableId(1), VariableId(2)


@dataclass
class HandClock:
    """A clock that advances only on request."""

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


def commit(queue: CommitQueue, clock: HandClock, *, cost_ns: int = 0) -> frozenset[VariableId]:
    began_ns = clock.now_ns
    taken = queue.take_due()
    clock.now_ns += cost_ns
    if taken:
        queue.committed(began_ns=began_ns)
    return taken


def test_a_lone_change_is_due_at_once(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    assert commit(queue, clock) == {A}
    clock.now_ns += 10 * MS
    queue.touch([B])
    assert queue.wait_ns() == 0


def test_changes_right_after_a_commit_are_one_commit(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    commit(queue, clock, cost_ns=MS)
    queue.touch([B])
    clock.now_ns += 8 * MS
    queue.touch([A])
    assert commit(queue, clock) == frozenset()
    clock.now_ns += MS
    assert commit(queue, clock) == {A, B}
    assert queue.wait_ns() is None


@pytest.mark.parametrize(
    ("cost_ns", "wait_ns"), [(0, MS), (MS // 2, 9 * MS // 2), (MS * 5, MS * 10)]
)
def test_the_wait_grows_with_the_cost_of_a_commit_within_bounds(
    queue: CommitQueue, clock: HandClock, cost_ns: int, wait_ns: int
) -> None:
    queue.touch([A])
    commit(queue, clock, cost_ns=cost_ns)
    queue.touch([A])
    assert queue.wait_ns() == wait_ns


def test_a_later_change_does_not_prolong_the_wait(queue: CommitQueue, clock: HandClock) -> None:
    queue.touch([A])
    commit(queue, clock, cost_ns=MS)
    queue.touch([A])
    clock.now_ns += 6 * MS
    queue.touch([B])
    assert queue.wait_ns() == 3 * MS


def test_a_huge_change_goes_in_parts(queue: CommitQueue, clock: HandClock) -> None:
    everything = {VariableId(number) for number in range(10_000)}
    queue.touch(everything)
    parts = []
    while queue.wait_ns() is not None:
        parts.append(commit(queue, clock))
        clock.now_ns += 10 * MS
    assert [len(part) for part in parts] == [4_096, 4_096, 1_808]
    assert frozenset().union(*parts) == everything


def test_everything_can_be_taken_at_once(queue: CommitQueue) -> None:
    queue.touch([A, B])
    assert queue.take_all() == {A, B}
    assert queue.take_all() == frozenset()
