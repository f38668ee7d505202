"""Several requests as one: their results in order, and nothing granted stays without an owner."""

from __future__ import annotations

from concurrent.futures import CancelledError, Future

import pytest

from gridstat.endpoint.joined_requests import JoinedRequests


def parts_of(count: int) -> list[Future[list[int]]]:
    return [Future() for _ in range(count)]


def test_the_results_are_one_list_in_the_order_of_the_requests() -> None:
    parts = parts_of(3)
    joined = JoinedRequests(parts, print)
    for number in (2, 0):
        parts[number].set_result([number, number])
    assert not joined.done()
    parts[1].set_result([1])
    assert joined.result(timeout=0) == [0, 0, 1, 2, 2]


def test_if_one_fails_the_others_are_given_back() -> None:
    parts, back = parts_of(3), list[list[int]]()
    joined = JoinedRequests(parts, back.append)
    parts[0].set_result([1])
    parts[1].set_exception(TimeoutError("no answer"))
    assert back == []
    parts[2].set_result([3])
    with pytest.raises(TimeoutError, match="no answer"):
        joined.result(timeout=0)
    assert back == [[1], [3]]


def test_once_cancelled_what_was_granted_and_what_is_granted_later_is_given_back() -> None:
    parts, back = parts_of(3), list[list[int]]()
    joined = JoinedRequests(parts, back.append)
    parts[0].set_result([1])
    parts[1].set_running_or_notify_cancel()
    assert joined.cancel()
    assert back == [[1]]
    assert parts[2].cancelled()
    parts[1].set_result([2])
    assert back == [[1], [2]]
    with pytest.raises(CancelledError):
        joined.result(timeout=0)


def test_what_is_over_cannot_be_cancelled() -> None:
    (part,), back = parts_of(1), list[list[int]]()
    joined = JoinedRequests([part], back.append)
    part.set_result([1])
    assert not joined.cancel()
    assert back == []
    assert joined.result(timeout=0) == [1]
