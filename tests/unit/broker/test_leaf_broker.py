"""The leaf broker end to end, without a network: attach, publish, subscribe, confirmed, granted."""

from __future__ import annotations

import pytest

from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import GrantedOutcome
from tests.unit.broker.conversation import Conversation, subscribe

PMU = "c1/north/pmu"
CENTRE = "c1/centre/display"
VOLTAGE = f"{PMU}/voltage"


@pytest.fixture
def cloud() -> Conversation:
    """A publisher at e0 and e1, a subscriber at e2 and e3."""
    found = Conversation().start()
    found.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    found.attach(CENTRE, "c1/e2", "c1/e3")
    return found


@pytest.mark.feature("S0-8", "S3-51")
def test_a_subscription_is_granted_when_every_router_of_its_paths_has_confirmed(
    cloud: Conversation,
) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")

    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))

    assert granted.variable == voltage
    assert len(granted.paths) == 2
    for path in granted.paths:
        for router in path.routers:
            held = cloud.routers[router].table
            assert voltage.variable_id in held.variables
            assert any(order.variable_id == voltage.variable_id for order in held.paths.values())
    assert cloud.differing() == []


def test_nothing_is_granted_before_a_router_has_confirmed(cloud: Conversation) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.routers["c1/i0"].is_silent = True
    cloud.routers["c1/i1"].is_silent = True

    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE)) == ()

    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
    (answer,) = [found for key, found in cloud.answers.items() if key[1] == cloud.request_id]
    assert isinstance(answer[0], GrantedOutcome)
