"""Granted is up: no answer grants a contract before routers have confirmed a path of it."""

from __future__ import annotations

import pytest

from gridstat.model.errors import DeadlinePassed, NoSuchVariable
from gridstat.model.qos import QosRequest
from gridstat.net.command.endpoint_messages import GrantedOutcome, Unpublish
from tests.unit.broker.conversation import Conversation, pair, refusal
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    return found


def test_a_silent_router_of_one_path_is_named_and_the_other_path_is_granted(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/i0"].is_silent = True
    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(redundancy=2))) == ()

    cloud.advance(cloud.settings.confirm_within_ns)

    (outcome,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.degraded == ("router c1/i0 has not confirmed its part yet",)


def test_a_subscription_of_which_no_path_is_up_is_refused_and_taken_back(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(redundancy=2)))

    cloud.advance(cloud.settings.confirm_within_ns)
    cloud.settle()

    refused = refusal(cloud.answers[CENTRE, cloud.request_id])
    assert refused.code == DeadlinePassed.code
    assert cloud.broker.registry.subscriptions == {}
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
    cloud.settle()
    assert cloud.differing() == []


def test_a_contract_that_cannot_be_taken_back_on_a_full_disk_is_neither_refused_nor_granted(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    command = subscribe(VOLTAGE, QosRequest(redundancy=2))
    cloud.ask(CENTRE, "c1/e2", command)
    cloud.is_disk_full = True
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    assert cloud.ask(CENTRE, "c1/e2", command, request_id=cloud.request_id) == ()

    cloud.is_disk_full = False
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    refused = refusal(cloud.answers[CENTRE, cloud.request_id])
    assert refused.code == DeadlinePassed.code
    assert cloud.broker.registry.subscriptions == {}


def test_a_contract_that_could_not_be_taken_back_is_granted_once_its_paths_are_up(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(redundancy=2)))
    cloud.is_disk_full = True
    cloud.advance(cloud.settings.confirm_within_ns)
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
    cloud.advance(cloud.settings.retry_after_ns)

    (outcome,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.subscription_id in cloud.broker.registry.subscriptions


def test_a_kept_answer_grants_nothing_after_a_restart_before_its_paths_are_up(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    command = subscribe(VOLTAGE, QosRequest(redundancy=2))
    number = cloud.send(CENTRE, "c1/e2", command)
    cloud.kill_broker()
    cloud.start()
    assert cloud.ask(CENTRE, "c1/e2", command, request_id=number) == ()
    cloud.advance(2 * cloud.settings.confirm_within_ns)
    assert (CENTRE, number) not in cloud.answers

    cloud.confirm("c1/i0")
    cloud.advance(cloud.settings.confirm_within_ns)
    (outcome,) = cloud.answers[CENTRE, number]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.subscription_id in cloud.broker.registry.subscriptions


def test_a_withdrawal_that_the_disk_cannot_take_is_answered_when_it_can(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = cloud.request_id
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    cloud.is_disk_full = True
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
        cloud.routers[name].is_silent = False
    cloud.settle()
    assert (CENTRE, number) not in cloud.answers

    cloud.is_disk_full = False
    cloud.advance(cloud.settings.retry_after_ns)
    assert refusal(cloud.answers[CENTRE, number]).code == NoSuchVariable.code


def test_a_router_that_leaves_while_asked_is_not_waited_for_if_another_path_works(
    cloud: Conversation,
) -> None:
    cloud.routers["c1/i0"].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE, QosRequest(redundancy=2)))
    cloud.disconnect("c1/i0")

    (outcome,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.degraded


def test_a_router_that_leaves_and_returns_in_time_confirms_by_its_digest(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    for name in ("c1/i0", "c1/i1"):
        cloud.disconnect(name)
        cloud.routers[name].is_silent = False
        cloud.connect(name)
    cloud.settle()

    (outcome,) = cloud.answers[CENTRE, cloud.request_id]
    assert isinstance(outcome, GrantedOutcome)
    assert outcome.degraded == ()


def test_a_variable_that_goes_while_its_paths_are_set_up_was_never_granted(
    cloud: Conversation,
) -> None:
    for name in ("c1/i0", "c1/i1"):
        cloud.routers[name].is_silent = True
    cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE))
    number = cloud.request_id
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    for name in ("c1/i0", "c1/i1"):
        cloud.confirm(name)
        cloud.routers[name].is_silent = False
    cloud.settle()

    refused = cloud.answers[CENTRE, number]
    assert refusal(refused).code == NoSuchVariable.code
    assert cloud.ask(CENTRE, "c1/e2", subscribe(VOLTAGE), request_id=number) == refused


# Patterns.
