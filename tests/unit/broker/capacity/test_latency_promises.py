"""Promised latencies: every path follows its elements, and who becomes late is named once."""

from __future__ import annotations

import pytest

from gridstat.broker.capacity.latency_promises import LatencyPromises, PathKey


def promises() -> LatencyPromises:
    """Two paths that share router b; the first has 10 to spare, the second 50."""
    made = LatencyPromises()
    made.make(PathKey(1, 0), ["a", "b", 1], 90, 100)
    made.make(PathKey(2, 0), ["b", "c", 2], 50, 100)
    return made


def test_paths_move_with_their_elements() -> None:
    made = promises()
    made.move("b", 5)
    made.move(2, 7)
    assert made.latency_us(PathKey(1, 0)) == 95
    assert made.latency_us(PathKey(2, 0)) == 62


def test_a_path_is_named_late_when_it_becomes_so_and_not_again() -> None:
    made = promises()
    assert made.move("b", 20) == [PathKey(1, 0)]
    assert made.late_us(PathKey(1, 0)) == 10
    assert made.move("b", 20) == []
    assert made.late() == [PathKey(1, 0)]
    assert made.move("b", -40) == []
    assert made.late() == []


def test_a_path_that_takes_exactly_what_was_promised_is_not_late() -> None:
    made = promises()
    assert made.move("b", 10) == []
    assert made.late_us(PathKey(1, 0)) == 0
    assert made.late() == []
    assert made.move("b", 1) == [PathKey(1, 0)]


def test_an_ended_promise_is_over_nothing() -> None:
    made = promises()
    made.end(PathKey(1, 0))
    assert PathKey(1, 0) not in made
    assert made.over("b") == [PathKey(2, 0)]
    assert made.over("a") == []
    assert len(made) == 1


def test_a_path_is_promised_once() -> None:
    with pytest.raises(AssertionError, match="promised already"):
        promises().make(PathKey(1, 0), ["a"], 1, 2)
