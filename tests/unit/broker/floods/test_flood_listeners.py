"""End-points that receive all floods while they are registered, and only then (S0-47)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gridstat.broker.floods import flood_listeners
from gridstat.model.errors import LayoutError, QuotaReached
from gridstat.net.command.endpoint_messages import (
    Detach,
    FoundOutcome,
    ListenToFloods,
    RefusedOutcome,
)
from gridstat.net.command.machine import Received
from gridstat.net.command.operator_messages import RemoveFlooding, SetFlooding
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE

if TYPE_CHECKING:
    from gridstat.net.command.router_messages import ChannelOrder

HEAR = ListenToFloods(data_port=6_000, urgent_port=6_001)


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def flood(cloud: Conversation) -> None:
    cloud.tell(Received("operator/c1/alice", SetFlooding(request_id=1, name=VOLTAGE)))
    cloud.settle()


def hear(cloud: Conversation, command: ListenToFloods = HEAR) -> list[str]:
    found = cloud.only(FoundOutcome, cloud.ask(CENTRE, "c1/e2", command))
    return [variable.name for variable in found.variables]


def hearing_channels(cloud: Conversation) -> dict[str, list[ChannelOrder]]:
    """Return the channels of each router that lead to an end-point and flood."""
    found = {
        name: [
            order
            for order in router.table.channels.values()
            if order.floods and order.to not in cloud.routers
        ]
        for name, router in cloud.routers.items()
    }
    return {name: orders for name, orders in found.items() if orders}


@pytest.mark.feature("S0-47")
def test_every_edge_of_the_end_point_floods_to_it_while_it_is_registered(
    cloud: Conversation,
) -> None:
    assert hear(cloud) == []
    flood(cloud)
    assert hear(cloud) == [VOLTAGE]
    found = hearing_channels(cloud)
    assert found.keys() == {"c1/e2", "c1/e3"}
    for (order,) in found.values():
        assert (order.to, order.data_port, order.level) == (CENTRE, 6_000, 255)
    assert cloud.differing() == []
    hear(cloud, ListenToFloods())
    assert hearing_channels(cloud) == {}
    assert cloud.broker.floods.listeners == {}


def test_only_what_floods_now_is_told(cloud: Conversation) -> None:
    flood(cloud)
    hear(cloud)
    cloud.tell(Received("operator/c1/alice", RemoveFlooding(request_id=2, name=VOLTAGE)))
    cloud.settle()
    assert hear(cloud) == []


def test_asking_again_writes_nothing(cloud: Conversation) -> None:
    hear(cloud)
    before = list(cloud.journal)
    hear(cloud)
    assert cloud.journal == before


def test_it_survives_a_kill_of_the_broker_and_a_restart_of_the_edge(cloud: Conversation) -> None:
    hear(cloud)
    before = hearing_channels(cloud)
    cloud.kill_broker()
    for router in cloud.routers.values():
        router.table.clear()
        router.is_first_time = True
    cloud.start()
    assert hearing_channels(cloud) == before
    cloud.journal = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    assert hearing_channels(cloud) == before


def test_it_ends_with_the_end_point_or_with_another_process_of_it(cloud: Conversation) -> None:
    hear(cloud)
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.attach(CENTRE, "c1/e2", "c1/e3", incarnation="b")
    cloud.settle()
    assert hearing_channels(cloud) == {}
    hear(cloud)
    cloud.ask(CENTRE, "c1/e2", Detach())
    assert hearing_channels(cloud) == {}
    assert cloud.broker.floods.listeners == {}


def test_without_a_place_to_hear_it_is_refused(cloud: Conversation) -> None:
    half = ListenToFloods(data_port=6_000)
    refused = cloud.only(RefusedOutcome, cloud.ask(CENTRE, "c1/e2", half))
    assert refused.code == LayoutError.code


def test_so_many_end_points_hear_all_that_floods_and_no_more(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood_listeners, "LISTENERS_MAX", 1)
    hear(cloud)
    refused = cloud.only(RefusedOutcome, cloud.ask(PMU, "c1/e0", HEAR))
    assert refused.code == QuotaReached.code
    assert hear(cloud) == []


def test_an_edge_copies_what_floods_to_few_end_points_and_names_itself_to_the_next(
    cloud: Conversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flood_listeners, "EDGE_LISTENERS_MAX", 1)
    hear(cloud)
    cloud.attach("c1/other", "c1/e3")
    cloud.settle()
    refused = cloud.only(RefusedOutcome, cloud.ask("c1/other", "c1/e3", HEAR))
    assert refused.code == QuotaReached.code
    assert "at c1/e3 already" in refused.reason
    assert CENTRE in refused.reason
    assert refused.hint
    assert hear(cloud) == []  # Whoever hears already may ask again,
    hear(cloud, ListenToFloods())  # and makes room when it ends.
    assert cloud.only(FoundOutcome, cloud.ask("c1/other", "c1/e3", HEAR)).variables == ()


@pytest.mark.parametrize("change", [{"versions": (1, 2)}, {"endpoint_security": "none"}])
def test_an_edge_that_seals_no_longer_gets_no_sealed_channel_of_a_listener(
    cloud: Conversation, change: dict[str, Any]
) -> None:
    hear(cloud)
    assert hearing_channels(cloud).keys() == {"c1/e2", "c1/e3"}
    before = cloud.routers["c1/e2"].versions
    cloud.disconnect("c1/e2")
    for name, value in change.items():
        setattr(cloud.routers["c1/e2"], name, value)
    cloud.connect("c1/e2")
    cloud.settle()
    assert hearing_channels(cloud).keys() == {"c1/e3"}
    cloud.disconnect("c1/e2")
    cloud.routers["c1/e2"].versions, cloud.routers["c1/e2"].endpoint_security = before, "hop"
    cloud.connect("c1/e2")
    cloud.settle()
    assert hearing_channels(cloud).keys() == {"c1/e2", "c1/e3"}
