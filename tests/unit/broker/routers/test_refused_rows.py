"""Rows that a router's core cannot hold: whoever depends on them is told, and nobody else."""

from __future__ import annotations

from typing import Any

import pytest

from gridstat.model.errors import RouterFull
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    ContractChanged,
    GrantedOutcome,
    RefusedOutcome,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.messages import Explain, TableRefused
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

CURRENT = f"{PMU}/current"
NO_ROOM = "no room for so many variables"


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    found.publish(CURRENT, "c1/e0")
    return found


def number_of(cloud: Conversation, name: str) -> int:
    return cloud.broker.registry.publications[name].variable.variable_id


def explained(cloud: Conversation, name: str) -> dict[str, Any]:
    cloud.tell(Received("operator/c1/alice", Explain(request_id=8, name=name)))
    (facts,) = cloud.operator_answers[-1].facts["subscriptions"]
    assert isinstance(facts, dict)
    return facts


def inner_router(cloud: Conversation, name: str, redundancy: int = 1) -> tuple[int, str]:
    """A contract that stands, and a router in the middle of its first path."""
    granted = cloud.subscribe(CENTRE, "c1/e2", name, QosRequest(redundancy=redundancy))
    return granted.subscription_id, granted.paths[0].routers[1]


def complain(cloud: Conversation, router: str) -> None:
    """As a router does at first: it is sent the whole table, and confirms what it can hold."""
    cloud.hear(router, TableRefused(number=1, code=4003, reason=NO_ROOM))
    cloud.settle()


def test_a_router_that_refuses_a_row_is_not_in_step_and_its_contract_is_impaired(
    cloud: Conversation,
) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    cloud.subscribe(CENTRE, "c1/e2", CURRENT)
    assert cloud.broker.tables[router].is_in_step
    cloud.routers[router].refused = {number_of(cloud, VOLTAGE): NO_ROOM}

    complain(cloud, router)

    assert not cloud.broker.tables[router].is_in_step
    words = f"router {router} cannot carry it: {NO_ROOM}"
    assert explained(cloud, VOLTAGE)["state"] == "impaired"
    assert explained(cloud, VOLTAGE)["degraded"] == [words]
    assert explained(cloud, CURRENT)["degraded"] == []
    told = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    assert told[-1].granted.degraded == (words,)

    cloud.routers[router].refused = {}
    complain(cloud, router)

    assert cloud.broker.tables[router].is_in_step
    assert explained(cloud, VOLTAGE)["state"] == "granted"
    told = [each for each in cloud.notices[CENTRE] if isinstance(each, ContractChanged)]
    assert told[-1].granted.degraded == ()


def test_a_new_contract_whose_only_path_has_a_refused_row_is_refused_with_the_reason(
    cloud: Conversation,
) -> None:
    edge = cloud.routers["c1/e0"]
    cloud.routers["c1/e1"].refused = edge.refused = {number_of(cloud, VOLTAGE): NO_ROOM}

    voltage, current = cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, CURRENT))

    assert isinstance(voltage, RefusedOutcome)
    assert voltage.code == RouterFull.code
    assert voltage.reason.endswith(f"cannot carry {VOLTAGE}: {NO_ROOM}")
    assert isinstance(current, GrantedOutcome)
    assert current.degraded == ()
    assert list(cloud.broker.registry.subscriptions) == [current.subscription_id]


def test_a_second_contract_over_a_row_that_is_refused_already_is_impaired_too(
    cloud: Conversation,
) -> None:
    _, router = inner_router(cloud, VOLTAGE, redundancy=2)
    cloud.routers[router].refused = {number_of(cloud, VOLTAGE): NO_ROOM}
    complain(cloud, router)

    second = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2, every=3))

    assert f"router {router} has not confirmed its part yet" in second.degraded
    found = cloud.broker.registry.subscriptions[second.subscription_id]
    assert found.troubles == (f"router {router} cannot carry it: {NO_ROOM}",)


def test_old_paths_stay_while_a_row_of_the_new_ones_is_refused(cloud: Conversation) -> None:
    number, _ = inner_router(cloud, VOLTAGE)
    for router in cloud.routers.values():
        router.refused = {number_of(cloud, VOLTAGE): NO_ROOM}
    qos = ModalQos({0: QosRequest(every=3)})
    changed = ChangeSubscription(subscription_id=number, qos=qos)
    granted = cloud.only(GrantedOutcome, cloud.ask(CENTRE, "c1/e2", changed))
    assert any("has not confirmed its part yet" in words for words in granted.degraded)
    cloud.advance(10 * cloud.settings.confirm_within_ns)
    found = cloud.broker.registry.subscriptions[number]
    assert found.retiring

    for name, router in cloud.routers.items():
        router.refused = {}
        complain(cloud, name)
    cloud.advance(10 * cloud.settings.confirm_within_ns)
    assert not found.retiring
    assert cloud.differing() == []


def test_a_router_that_refuses_its_table_is_not_in_step_and_explain_says_why(
    cloud: Conversation,
) -> None:
    _, router = inner_router(cloud, VOLTAGE)
    cloud.routers[router].is_silent = True

    cloud.hear(router, TableRefused(number=1, code=4003, reason="no room"))

    assert not cloud.broker.tables[router].is_in_step
    assert explained(cloud, VOLTAGE)["state"] == "waiting for routers"
    assert explained(cloud, VOLTAGE)["degraded"] == [f"router {router} refuses its table: no room"]
