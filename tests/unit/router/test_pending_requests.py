"""Unanswered requests are remembered in order, within bounds."""

from __future__ import annotations

import pytest

from gridstat.net.command.endpoint_messages import Submit
from gridstat.router.pending_requests import PendingRequests, RequestBounds

PMU, DESK = "c1/pmu", "c1/desk"


def submit(request_id: int, body: bytes = b"body") -> Submit:
    return Submit(request_id=request_id, body=body, signature=b"s" * 6)


@pytest.fixture
def requests() -> PendingRequests:
    return PendingRequests(RequestBounds(of_endpoint_max=3, requests_max=5, bytes_max=100))


def numbers(requests: PendingRequests) -> list[tuple[str, int]]:
    return [(endpoint, submit.request_id) for endpoint, submit in requests]


def test_requests_stay_in_the_order_of_their_coming_until_answered(
    requests: PendingRequests,
) -> None:
    requests.add(PMU, submit(2))
    requests.add(DESK, submit(1))
    requests.add(PMU, submit(3))
    requests.add(PMU, submit(2))
    assert numbers(requests) == [(PMU, 2), (DESK, 1), (PMU, 3)]
    requests.answered(PMU, 2)
    requests.answered(PMU, 2)
    assert numbers(requests) == [(DESK, 1), (PMU, 3)]


def test_the_oldest_of_an_end_point_goes_beyond_its_bound(requests: PendingRequests) -> None:
    requests.add(DESK, submit(9))
    for number in range(4):
        requests.add(PMU, submit(number))
    assert numbers(requests) == [(DESK, 9), (PMU, 1), (PMU, 2), (PMU, 3)]
    assert requests.dropped == 1


def test_the_oldest_of_all_goes_beyond_the_bound_of_all(requests: PendingRequests) -> None:
    for endpoint in ("c1/a", "c1/b", "c1/c"):
        requests.add(endpoint, submit(1))
        requests.add(endpoint, submit(2))
    assert numbers(requests)[0] == ("c1/a", 2)
    assert len(requests) == 5
    assert requests.dropped == 1


def test_bytes_are_bounded_too_and_given_back(requests: PendingRequests) -> None:
    requests.add(PMU, submit(1, b"x" * 60))
    requests.add(DESK, submit(1, b"x" * 60))
    assert numbers(requests) == [(DESK, 1)]
    requests.add(DESK, submit(1, b"x" * 80))
    assert numbers(requests) == [(DESK, 1)]
    requests.add(DESK, submit(2, b"x" * 200))
    assert numbers(requests) == []
    requests.add(PMU, submit(3, b"x" * 90))
    assert numbers(requests) == [(PMU, 3)]


def test_an_end_point_is_forgotten_alone(requests: PendingRequests) -> None:
    requests.add(PMU, submit(1))
    requests.add(DESK, submit(1))
    requests.forget(PMU)
    requests.forget("c1/nobody")
    assert numbers(requests) == [(DESK, 1)]
    assert requests.dropped == 0
