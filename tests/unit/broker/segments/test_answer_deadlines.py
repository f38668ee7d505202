"""Deadlines of answers to end-points that wait for other clouds."""

from __future__ import annotations

import pytest

from gridstat.model.errors import (
    DeadlinePassed,
)
from gridstat.model.qos import ModalQos, QosRequest
from gridstat.net.command.endpoint_messages import (
    ChangeSubscription,
    GrantedOutcome,
    RefusedOutcome,
)
from gridstat.net.command.segment_messages import (
    AskContract,
    EndContract,
)
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import FAR, Family, family
from tests.unit.broker.stand_ins import CENTRE, subscribe

NO = RefusedOutcome(code=1039, reason="full", bottleneck="channel c2/a→c2/b")


@pytest.fixture
def cloud() -> Family:
    return family()


def answer(cloud: Family, request_id: int = 0) -> GrantedOutcome:
    found = cloud.answers[CENTRE, request_id or cloud.request_id]
    return cloud.only(GrantedOutcome, found)


def have(cloud: Family, *, paths: int = 1) -> int:
    """A contract across clouds, granted; its number."""
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, QosRequest(redundancy=paths)))
    cloud.grant(cloud.last(AskContract), paths=paths)
    return answer(cloud).subscription_id


def test_an_end_point_is_answered_also_if_the_brokers_above_are_away(cloud: Family) -> None:
    cloud.lose_parent()
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.advance(cloud.settings.ask_within_ns + 1)
    assert refusal(cloud.answers[CENTRE, number]).code == DeadlinePassed.code
    cloud.join()
    assert cloud.heard(AskContract) == []
    (asked,) = cloud.broker.registry.tree.asked
    assert cloud.last(EndContract).contract == f"c1#{asked}"


def test_patience_begins_anew_after_a_kill(cloud: Family) -> None:
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    cloud.kill_broker()
    cloud.start()
    cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name), request_id=number)
    cloud.advance(cloud.settings.ask_within_ns - 1_000_000_000)
    assert (CENTRE, number) not in cloud.answers
    cloud.advance(2_000_000_000)
    assert refusal(cloud.answers[CENTRE, number]).code == DeadlinePassed.code


def test_a_change_that_nobody_answers_leaves_the_contract(cloud: Family) -> None:
    number = have(cloud)
    qos = ModalQos({0: QosRequest(redundancy=2)})
    cloud.ask(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    cloud.advance(cloud.settings.ask_within_ns)
    assert refusal(cloud.answers[CENTRE, cloud.request_id]).code == DeadlinePassed.code
    found = cloud.broker.registry.tree.asked[number]
    assert found.change is not None
    assert (found.change.qos, found.is_ending) == (found.record.qos, False)


def test_a_change_has_the_whole_time_also_soon_after_its_contract(cloud: Family) -> None:
    number = have(cloud)
    cloud.advance(cloud.settings.ask_within_ns - 1_000_000_000)
    qos = ModalQos({0: QosRequest(redundancy=2)})
    changed = cloud.send(CENTRE, "c1/e2", ChangeSubscription(subscription_id=number, qos=qos))
    cloud.settle()
    cloud.advance(cloud.settings.ask_within_ns - 1_000_000_000)
    assert (CENTRE, changed) not in cloud.answers
    cloud.advance(2_000_000_000)
    assert refusal(cloud.answers[CENTRE, changed]).code == DeadlinePassed.code
