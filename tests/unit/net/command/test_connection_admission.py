"""Admission of connections in virtual time: bounds, rates, and who gives way to whom."""

from __future__ import annotations

import random

import pytest

from gridstat.net.command.connection_admission import (
    NS_PER_S,
    SOURCES_MAX,
    AdmissionLimits,
    Admitted,
    ConnectionAdmission,
    Refusal,
    SessionPlaces,
    source_of,
)
from gridstat.net.command.identity import Role

MS = NS_PER_S // 1_000


def admitted(answer: Admitted | Refusal) -> Admitted:
    assert isinstance(answer, Admitted)
    return answer


def test_a_source_has_50_connections_a_second_however_long_it_tries() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    begun = 0
    for step in range(10_000):  # One every millisecond, for ten seconds.
        answer = admission.arrive("192.0.2.1", step * MS)
        if isinstance(answer, Admitted):
            begun += 1
            admission.leave(answer.ticket)
        else:
            assert answer is Refusal.SOURCE_RATE
    assert begun == 50 + 10 * 50 - 1


def test_the_rate_of_one_source_is_not_that_of_another() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    while isinstance(answer := admission.arrive("192.0.2.1", 0), Admitted):
        admission.leave(answer.ticket)
    assert isinstance(admission.arrive("192.0.2.2", 0), Admitted)


def test_a_source_has_16_pending_connections() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    for _ in range(16):
        admitted(admission.arrive("192.0.2.1", 0))
    assert admission.arrive("192.0.2.1", 0) is Refusal.SOURCE_PENDING
    assert admission.pending == 16


def test_a_pending_connection_of_a_second_gives_way_to_the_next_of_its_source() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    tickets = [admitted(admission.arrive("192.0.2.1", n)).ticket for n in range(16)]
    assert admission.arrive("192.0.2.1", NS_PER_S - 1) is Refusal.SOURCE_PENDING
    answer = admitted(admission.arrive("192.0.2.1", NS_PER_S))
    assert answer.replaces == tickets[0]
    assert admission.arrive("192.0.2.1", NS_PER_S) is Refusal.SOURCE_PENDING


def test_a_full_house_takes_the_place_of_whoever_has_most() -> None:
    admission = ConnectionAdmission(AdmissionLimits(pending_max=8))
    for host in ("192.0.2.1", "192.0.2.2", "192.0.2.3"):
        admitted(admission.arrive(host, 0))
    heavy = [admitted(admission.arrive("192.0.2.9", n)).ticket for n in range(5)]
    answer = admitted(admission.arrive("192.0.2.4", 10))
    assert answer.replaces == heavy[0]
    assert admission.pending == 8


def test_the_heaviest_source_takes_from_itself() -> None:
    admission = ConnectionAdmission(AdmissionLimits(pending_max=4))
    admitted(admission.arrive("192.0.2.1", 0))
    admitted(admission.arrive("192.0.2.2", 0))
    own = admitted(admission.arrive("192.0.2.9", 1)).ticket
    admitted(admission.arrive("192.0.2.9", 2))
    assert admitted(admission.arrive("192.0.2.9", 3)).replaces == own


def test_of_equals_the_oldest_gives_way() -> None:
    admission = ConnectionAdmission(AdmissionLimits(pending_max=3))
    first, *_ = [admitted(admission.arrive(f"192.0.2.{n}", n)).ticket for n in range(3)]
    assert admitted(admission.arrive("192.0.2.9", 4)).replaces == first


def test_who_has_left_has_left_once() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    ticket = admitted(admission.arrive("192.0.2.1", 0)).ticket
    admission.leave(ticket)
    admission.leave(ticket)
    assert admission.pending == 0


@pytest.mark.parametrize("seed", range(5))
def test_no_bound_is_ever_passed_whatever_comes(seed: int) -> None:
    draw = random.Random(seed)
    limits = AdmissionLimits(pending_max=20, source_pending_max=4, source_per_s_max=10)
    admission = ConnectionAdmission(limits)
    held: dict[int, str] = {}
    now_ns = 0
    for _ in range(5_000):
        now_ns += draw.randrange(20 * MS)
        host = f"192.0.2.{draw.randrange(12)}"
        answer = admission.arrive(host, now_ns)
        if isinstance(answer, Admitted):
            if answer.replaces is not None:
                del held[answer.replaces]
            held[answer.ticket] = host
        if held and draw.random() < 0.3:
            ticket = draw.choice(list(held))
            del held[ticket]
            admission.leave(ticket)
        assert admission.pending == len(held) <= 20
        assert max(map(list(held.values()).count, held.values()), default=0) <= 4


def test_the_memory_of_sources_is_bounded() -> None:
    admission = ConnectionAdmission(AdmissionLimits())
    for n in range(3 * SOURCES_MAX):
        admission.leave(admitted(admission.arrive(f"10.0.{n // 250}.{n % 250}", n)).ticket)
    assert admission.known_sources <= SOURCES_MAX


@pytest.mark.parametrize(
    ("host", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::1", "::/64"),
    ],
)
def test_an_ipv6_network_is_one_source(host: str, source: str) -> None:
    assert source_of(host) == source


def test_end_points_leave_places_to_routers_and_operators() -> None:
    places = SessionPlaces(100, {Role.ENDPOINT, Role.ROUTER, Role.OPERATOR})
    full = {Role.ENDPOINT: 75, Role.OPERATOR: 12}
    assert not places.has_place(Role.ENDPOINT, full)
    assert not places.has_place(Role.OPERATOR, full)
    assert places.has_place(Role.ROUTER, full)
    assert places.has_place(Role.OPERATOR, {Role.ENDPOINT: 75})


def test_end_points_that_are_served_alone_have_all_places() -> None:
    places = SessionPlaces(100, {Role.ENDPOINT})
    assert places.has_place(Role.ENDPOINT, {Role.ENDPOINT: 99})
    assert not places.has_place(Role.ENDPOINT, {Role.ENDPOINT: 100})


def test_nobody_has_a_place_when_all_are_taken() -> None:
    places = SessionPlaces(10, {Role.ROUTER, Role.OPERATOR})
    assert not places.has_place(Role.OPERATOR, {Role.ROUTER: 10})
    assert not places.has_place(Role.ROUTER, {Role.ROUTER: 10})
