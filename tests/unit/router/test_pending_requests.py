"""Requests fly in order and within bounds; none is lost with a session."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import Attach, Detach, Submit
from gridstat.net.command.frames import encode_body
from gridstat.router.pending_requests import PendingRequests, RequestBounds

PMU, DESK = "c1/pmu", "c1/desk"


def submit(request_id: int, body: bytes = b"body") -> Submit:
    return Submit(request_id=request_id, body=body, signature=b"s" * 6)


@pytest.fixture
def requests() -> PendingRequests:
    return PendingRequests(
        RequestBounds(
            in_flight_max=2,
            of_endpoint_max=4,
            requests_max=6,
            bytes_max=100,
            bytes_of_endpoint_max=100,
            expiry_ns=NS_PER_S,
        )
    )


def flown(requests: PendingRequests, endpoint: str, now_ns: int = 0) -> list[int]:
    return [each.request_id for each in requests.take_ready(endpoint, now_ns)]


def all_flown(requests: PendingRequests) -> list[tuple[str, int]]:
    return [(endpoint, each.request_id) for endpoint, each in requests.take_all_ready(0)]


def test_so_many_fly_and_the_next_follow_the_answers(requests: PendingRequests) -> None:
    for number in (5, 6, 7, 8):
        requests.add(PMU, submit(number), 0)
    assert flown(requests, PMU) == [5, 6]
    assert flown(requests, PMU) == []
    requests.answered(PMU, 6)
    assert flown(requests, PMU) == [7]
    requests.answered(PMU, 999)
    assert flown(requests, "c1/nobody") == []
    assert len(requests) == 3


def test_after_a_lost_session_all_unanswered_ones_fly_again_in_order(
    requests: PendingRequests,
) -> None:
    requests.add(PMU, submit(2), 0)
    requests.add(DESK, submit(1), 0)
    assert all_flown(requests) == [(PMU, 2), (DESK, 1)]
    requests.answered(PMU, 2)
    requests.add(PMU, submit(3), 0)
    requests.session_lost()
    assert all_flown(requests) == [(DESK, 1), (PMU, 3)]
    requests.session_lost()
    assert flown(requests, PMU) == [3]


def test_beyond_an_end_points_bound_its_oldest_that_waits_goes(requests: PendingRequests) -> None:
    for number in range(1, 5):
        requests.add(PMU, submit(number), 0)
    flown(requests, PMU)
    requests.add(PMU, submit(5), 0)
    assert requests.dropped == 1
    requests.answered(PMU, 1)
    requests.answered(PMU, 2)
    assert flown(requests, PMU) == [4, 5]


def test_beyond_the_bound_of_all_the_oldest_of_all_that_waits_goes(
    requests: PendingRequests,
) -> None:
    requests.add(DESK, submit(9), 0)
    flown(requests, DESK)
    for endpoint in ("c1/a", "c1/b"):
        for number in (1, 2, 3):
            requests.add(endpoint, submit(number), 0)
    assert len(requests) == 6
    assert flown(requests, "c1/a") == [2, 3]


def test_bytes_are_bounded_too_and_given_back(requests: PendingRequests) -> None:
    requests.add(PMU, submit(1, b"x" * 60), 0)
    requests.add(DESK, submit(1, b"x" * 60), 0)
    assert all_flown(requests) == [(DESK, 1)]
    requests.add(PMU, submit(2, b"x" * 200), 0)
    assert len(requests) == 1
    requests.answered(DESK, 1)
    requests.add(PMU, submit(3, b"x" * 90), 0)
    assert flown(requests, PMU) == [3]


def test_a_repeated_request_flies_again_only_after_a_second(requests: PendingRequests) -> None:
    requests = PendingRequests(RequestBounds())
    requests.add(PMU, submit(1), 0)
    assert flown(requests, PMU) == [1]
    requests.add(PMU, submit(1), NS_PER_S - 1)
    assert flown(requests, PMU, NS_PER_S - 1) == []
    requests.add(PMU, submit(1), NS_PER_S)
    assert flown(requests, PMU, NS_PER_S) == [1]
    assert len(requests) == 1


def test_what_is_never_answered_does_not_block_for_ever(requests: PendingRequests) -> None:
    for number in (1, 2, 3):
        requests.add(PMU, submit(number), 0)
    flown(requests, PMU)
    assert flown(requests, PMU, NS_PER_S - 1) == []
    assert flown(requests, PMU, NS_PER_S) == [3]
    assert requests.dropped == 2


def test_a_request_with_which_three_sessions_ended_is_not_said_to_a_fourth() -> None:
    requests = PendingRequests(RequestBounds())
    requests.add(PMU, submit(1), 0)
    for _ in range(3):
        assert all_flown(requests) == [(PMU, 1)]
        requests.session_lost()
    assert all_flown(requests) == []
    assert (len(requests), requests.dropped) == (0, 1)


def test_a_request_that_only_waits_survives_any_number_of_sessions() -> None:
    requests = PendingRequests(RequestBounds())
    requests.add(PMU, submit(1), 0)
    for _ in range(9):
        requests.session_lost()
    assert all_flown(requests) == [(PMU, 1)]


def test_a_request_ages_from_when_its_end_point_said_it_last() -> None:
    requests = PendingRequests(RequestBounds(age_ns_max=10 * NS_PER_S))
    for number in (1, 2):
        requests.add(PMU, submit(number), 0)
    requests.add(DESK, submit(3), 0)
    requests.add(PMU, submit(2), 5 * NS_PER_S)
    assert flown(requests, PMU, 11 * NS_PER_S) == [2]
    assert requests.take_all_ready(11 * NS_PER_S) == []
    assert (len(requests), requests.dropped) == (1, 2)


def test_one_end_point_leaves_three_quarters_of_the_room_to_others() -> None:
    requests = PendingRequests(RequestBounds())
    for number in range(300):
        requests.add(PMU, submit(number, b"x" * (2**20 - 100)), 0)
        flown(requests, PMU)
    assert len(requests) == 4
    requests.add(DESK, submit(1, b"y" * 2**20), 0)
    assert flown(requests, DESK) == [1]


def test_an_end_point_is_forgotten_alone(requests: PendingRequests) -> None:
    requests.add(PMU, submit(1), 0)
    requests.add(DESK, submit(1), 0)
    requests.forget(PMU)
    requests.forget("c1/nobody")
    assert all_flown(requests) == [(DESK, 1)]
    assert requests.dropped == 0


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["add", "fly", "answer", "session_lost", "forget"]),
        st.sampled_from([PMU, DESK]),
        st.integers(1, 6),
        st.integers(0, 40),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_bounds_hold_whatever_happens(steps: list[tuple[str, str, int, int]]) -> None:
    bounds = RequestBounds(in_flight_max=2, of_endpoint_max=3, requests_max=4, bytes_max=120)
    requests = PendingRequests(bounds)
    in_flight: dict[str, set[int]] = {PMU: set(), DESK: set()}
    for now_ns, (word, endpoint, number, size) in enumerate(steps):
        match word:
            case "add":
                requests.add(endpoint, submit(number, b"x" * size), now_ns)
            case "fly":
                in_flight[endpoint].update(flown(requests, endpoint, now_ns))
            case "answer":
                requests.answered(endpoint, number)
                in_flight[endpoint].discard(number)
            case "forget":
                requests.forget(endpoint)
                in_flight[endpoint].clear()
            case _:
                requests.session_lost()
                in_flight = {PMU: set(), DESK: set()}
        assert len(requests) <= 4
        assert all(len(flying) <= 2 for flying in in_flight.values())
    requests.forget(PMU)
    requests.forget(DESK)
    assert len(requests) == 0
    assert requests._size_bytes == 0
    assert not requests._waiting
    assert not requests._by_endpoint


def test_with_a_session_goes_only_the_request_to_be_attached() -> None:
    requests = PendingRequests(RequestBounds())
    attach = Attach(edge="c1/e0", certificate=b"", incarnation="1", first_time=True)
    for number, body in enumerate((b"unreadable", encode_body(attach), encode_body(Detach()))):
        requests.add(PMU, submit(number, body), 0)
    assert flown(requests, PMU) == [0, 1, 2]
    requests.forget_attaching(DESK)
    requests.forget_attaching(PMU)
    requests.session_lost()
    assert all_flown(requests) == [(PMU, 0), (PMU, 2)]


def test_a_storm_of_one_end_point_costs_another_neither_its_turn_nor_its_request() -> None:
    requests = PendingRequests(RequestBounds(of_endpoint_max=50, requests_max=20))
    requests.add(DESK, submit(1), 0)
    for number in range(40):
        requests.add(PMU, submit(100 + number), 0)
    requests.add(DESK, submit(2), 0)

    assert all_flown(requests)[:4] == [(DESK, 1), (PMU, 122), (DESK, 2), (PMU, 123)]
