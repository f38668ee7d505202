"""Addresses of receivers: numbers only, of one machine; all others are refused."""

from __future__ import annotations

import msgspec
import pytest

from gridstat.broker.routers.receiver_addresses import check_host, check_versions
from gridstat.model.errors import LayoutError, NotAuthorised
from gridstat.net.command.endpoint_messages import Attach
from gridstat.net.command.machine import Connected
from gridstat.net.command.session_messages import Hello
from tests.unit.broker.conversation import Conversation, refusal

HOSTS = [
    "nowhere.example.com",
    "h",
    "",
    "x" * 300,
    "a\0b",
    "10.0.0.1 ",
    "224.0.0.1",
    "0.0.0.0",
    "::",
]


@pytest.fixture
def cloud() -> Conversation:
    return Conversation().start()


def attach(endpoint: str, **facts: object) -> Attach:
    command = Attach(
        edge="c1/e0", certificate=f"endpoint/{endpoint}".encode(), incarnation="a", first_time=True
    )
    return msgspec.structs.replace(command, **facts)


@pytest.mark.parametrize("host", HOSTS)
def test_a_host_that_is_no_address_of_a_machine_is_refused(host: str) -> None:
    with pytest.raises(LayoutError, match="not the address of a machine"):
        check_host(host, of="c1/new")


@pytest.mark.parametrize("host", ["10.0.0.1", "127.0.0.1", "2001:db8::7", "fe80::1%eth0"])
def test_an_address_in_numbers_is_good(host: str) -> None:
    check_host(host, of="c1/new")


@pytest.mark.parametrize("versions", [(0,), (256,), (-1, 1), (1,) * 17])
def test_versions_are_small_numbers_and_few(versions: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError, match="versions"):
        check_versions(versions, of="c1/new")


def test_an_end_point_that_receives_at_a_name_is_refused(cloud: Conversation) -> None:
    command = attach("c1/new", host="pmu.example.com", data_port=5_000, urgent_port=5_001)
    assert refusal(cloud.ask("c1/new", "c1/e0", command)).code == LayoutError.code
    assert "c1/new" not in cloud.broker.registry.endpoints


def test_an_end_point_cannot_bear_the_name_of_the_cloud(cloud: Conversation) -> None:
    refused = refusal(cloud.ask("c1", "c1/e0", attach("c1")))
    assert (refused.code, "rule name" in refused.reason) == (NotAuthorised.code, True)


@pytest.mark.parametrize(
    "facts",
    [
        {"host": "router.example.com"},
        {"data_port": 70_000},
        {"urgent_port": -1},
        {"command_port": 70_000},
        {"datagram_versions": (1_000,)},
    ],
)
def test_a_router_that_reports_nonsense_is_sent_away_and_its_neighbours_never_hear_of_it(
    cloud: Conversation, facts: dict[str, object]
) -> None:
    router = cloud.routers["c1/i0"]
    before = cloud.broker.registry.reports["c1/i0"]
    cloud.disconnect("c1/i0")
    cloud.tell(Connected(router.peer, Hello(role="router", name="c1/i0", instance="2")))
    cloud.hear("c1/i0", msgspec.structs.replace(router.report(), **facts))
    assert [(each.peer, each.code) for each in cloud.closed] == [(router.peer, LayoutError.code)]
    assert cloud.broker.registry.reports["c1/i0"] == before
