"""End-points that come up at another edge, or lose one of two: their contracts follow them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.qos import QosRequest
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import ContractChanged
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE

if TYPE_CHECKING:
    from gridstat.broker.records.operations import Subscribed


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def record_of(cloud: Conversation, subscription_id: int) -> Subscribed:
    return cloud.broker.registry.subscriptions[subscription_id].record


def pass_a_second(cloud: Conversation) -> None:
    cloud.advance(NS_PER_S)
    cloud.settle()


def test_a_publisher_that_restarts_at_another_edge_is_heard_from_there() -> None:
    cloud = Conversation().start()
    cloud.attach(PMU, "c1/e0", data_port=0)
    cloud.attach(CENTRE, "c1/e2")
    cloud.publish(VOLTAGE, "c1/e0")
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)

    cloud.lose(PMU, "c1/e0")
    cloud.attach(PMU, "c1/e1", incarnation="b", data_port=0)
    cloud.publish(VOLTAGE, "c1/e1")
    pass_a_second(cloud)

    record = record_of(cloud, granted.subscription_id)
    assert [path.routers[0] for path in record.paths] == ["c1/e1"]
    assert len(cloud.path_orders("c1/e1")) == 1
    assert cloud.path_orders("c1/e0") == []
    assert [type(notice) for notice in cloud.notices[CENTRE]] == [ContractChanged]
    assert cloud.differing() == []


def test_a_publisher_that_loses_the_used_edge_is_heard_from_the_other(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    used = granted.paths[0].routers[0]

    cloud.lose(PMU, used)
    pass_a_second(cloud)

    (path,) = record_of(cloud, granted.subscription_id).paths
    assert path.routers[0] in {"c1/e0", "c1/e1"} - {used}
    (fresh,) = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE).paths
    assert fresh.routers[0] == path.routers[0]


def test_a_subscriber_that_loses_the_used_edge_is_served_by_the_other(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    used = granted.paths[0].routers[-1]

    cloud.lose(CENTRE, used)
    pass_a_second(cloud)

    (path,) = record_of(cloud, granted.subscription_id).paths
    assert path.routers[-1] in {"c1/e2", "c1/e3"} - {used}
    assert cloud.differing() == []


def test_an_end_point_that_comes_back_to_both_edges_has_its_paths_unmoved(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    used = granted.paths[0].routers[0]
    other = "c1/e1" if used == "c1/e0" else "c1/e0"

    cloud.lose(PMU, "c1/e0", "c1/e1")
    cloud.attach(PMU, other, used, first_time=False, data_port=0)
    pass_a_second(cloud)

    assert record_of(cloud, granted.subscription_id).generation == 0


def test_two_paths_spread_over_both_edges_again_when_the_lost_one_returns(
    cloud: Conversation,
) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE, QosRequest(redundancy=2))
    cloud.lose(PMU, "c1/e0")
    pass_a_second(cloud)
    meanwhile = record_of(cloud, granted.subscription_id)
    assert {path.routers[0] for path in meanwhile.paths} == {"c1/e1"}

    cloud.attach(PMU, "c1/e0", first_time=False, data_port=0)
    pass_a_second(cloud)

    record = record_of(cloud, granted.subscription_id)
    assert {path.routers[0] for path in record.paths} == {"c1/e0", "c1/e1"}
    assert cloud.broker.registry.subscriptions[granted.subscription_id].troubles == ()
    assert cloud.differing() == []


def test_a_moved_contract_is_the_same_after_a_restart_of_the_broker(cloud: Conversation) -> None:
    granted = cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.lose(PMU, granted.paths[0].routers[0])
    pass_a_second(cloud)
    before = record_of(cloud, granted.subscription_id)
    cloud.kill_broker()
    assert record_of(cloud, granted.subscription_id) == before


def test_an_attachment_that_the_disk_refuses_does_not_stop_the_grace_time(
    cloud: Conversation,
) -> None:
    cloud.subscribe(CENTRE, "c1/e2", VOLTAGE)
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.is_disk_full = True
    with pytest.raises(AssertionError, match="disk is full"):
        cloud.attach(CENTRE, "c1/e2", first_time=False)
    cloud.is_disk_full = False

    cloud.advance(2 * cloud.settings.grace_ns)

    assert CENTRE not in cloud.broker.registry.endpoints
    assert cloud.broker.registry.subscriptions == {}


def test_a_refused_attachment_to_a_second_edge_hides_no_loss_of_the_first() -> None:
    cloud = Conversation().start()
    cloud.attach(CENTRE, "c1/e2")
    cloud.is_journal_held = True
    with pytest.raises(AssertionError):
        cloud.attach(CENTRE, "c1/e3")
    cloud.lose(CENTRE, "c1/e2")
    cloud.is_journal_held = False
    cloud.is_disk_full = True
    cloud.write()
    cloud.is_disk_full = False

    cloud.advance(2 * cloud.settings.grace_ns)

    assert CENTRE not in cloud.broker.registry.endpoints
