"""Checks of publishers, which bring all their events to every edge they attach to."""

from __future__ import annotations

import pytest

from gridstat.model.cloud import Router, RouterRole
from gridstat.model.errors import NoSuchRouter, RouterFull
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import Attach
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import AddRouter, RemoveRouter
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, FakeRouter, publish, variable


@pytest.fixture
def cloud() -> Conversation:
    return pair()


def test_nobody_attaches_to_an_edge_that_is_just_being_removed(cloud: Conversation) -> None:
    operator = "operator/c1/alice"
    added = AddRouter(request_id=1, router=Router("c1/e9", RouterRole.EDGE))
    cloud.tell(Received(operator, added))
    cloud.routers["c1/e9"] = FakeRouter("c1/e9", 20_000)
    cloud.connect("c1/e9")
    cloud.settle()
    cloud.is_journal_held = True
    cloud.tell(Received(operator, RemoveRouter(request_id=2, name="c1/e9")))
    command = Attach(
        edge="c1/e9",
        certificate=b"endpoint/c1/n/p",
        incarnation="a",
        first_time=True,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    assert refusal(cloud.ask("c1/n/p", "c1/e9", command)).code == NoSuchRouter.code


def test_a_publisher_does_not_bring_more_to_another_edge_than_that_can_take() -> None:
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e1", data_port=0)
    cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/fast", period=Period(1, 600_000))))
    cloud.ask(CENTRE, "c1/e1", publish(variable(f"{CENTRE}/fast", period=Period(1, 600_000))))
    command = Attach(
        edge="c1/e1",
        certificate=f"endpoint/{PMU}".encode(),
        incarnation="a",
        first_time=False,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
    assert refusal(cloud.ask(PMU, "c1/e1", command)).code == RouterFull.code
