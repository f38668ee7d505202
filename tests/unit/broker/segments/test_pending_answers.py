"""Answers that wait for other clouds: each is finished once, at a cost of its own places only."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.model.errors import NoSuchSubscription, NoSuchVariable, ShuttingDown
from gridstat.net.command.endpoint_messages import (
    Attach,
    Detach,
    GrantedOutcome,
    RefusedOutcome,
    Unsubscribe,
)
from gridstat.net.command.segment_messages import (
    AskContract,
    ContractEnded,
    ContractRefused,
    EndContract,
)
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.counted import Counted
from tests.unit.broker.segments.family import FAR, Family, family
from tests.unit.broker.stand_ins import CENTRE, subscribe

REQUESTS, NAMES = 30, 20


@pytest.fixture
def cloud() -> Family:
    """An end-point has asked much of other clouds, and nothing is answered yet."""
    found = family()
    for at in range(REQUESTS):
        found.send(CENTRE, "c1/e2", subscribe(*[f"c2/p{at}/q{each}" for each in range(NAMES)]))
    return found


def counted(cloud: Family) -> tuple[Counted, Counted]:
    tree = cloud.broker.registry.tree
    asked, begun = Counted(tree.asked), Counted(tree.begun)
    tree.asked, tree.begun = asked, begun
    return asked, begun


def test_one_more_request_does_not_look_at_all_that_was_asked_before(cloud: Family) -> None:
    asked, begun = counted(cloud)
    cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    assert cloud.last(AskContract).name == FAR.name
    assert asked.looks + begun.looks < NAMES


def test_an_end_looks_at_its_own_request_only(cloud: Family) -> None:
    asked, begun = counted(cloud)
    number = min(asked)
    looks = asked.looks
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert cloud.last(EndContract).contract == f"c1#{number}"
    assert asked.looks - looks + begun.looks < NAMES


def test_the_message_of_an_end_looks_at_its_own_request_only(cloud: Family) -> None:
    number = min(cloud.broker.registry.tree.asked)
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    asked, begun = counted(cloud)
    cloud.say(ContractEnded(term=7, contract=f"c1#{number}"))
    assert number not in asked
    assert asked.looks + begun.looks < NAMES


def test_what_was_ended_shortly_before_a_kill_is_answered_after_the_start() -> None:
    cloud = family()
    asked = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", Unsubscribe(subscription_ids=()))
    cloud.write(count_max=1)
    cloud.kill_broker()
    cloud.is_journal_held = False
    cloud.start()
    assert cloud.broker.registry.tree.begun == {}
    (outcome,) = cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name), request_id=asked)
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == NoSuchSubscription.code


def test_an_end_that_the_disk_did_not_take_is_answered_later() -> None:
    cloud = family()
    asked = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", Unsubscribe(subscription_ids=()))
    cloud.write(count_max=1)
    cloud.is_disk_full = True
    cloud.write()
    cloud.is_disk_full = cloud.is_journal_held = False
    cloud.say(ContractEnded(term=7, contract=cloud.last(EndContract).contract))
    (outcome,) = cloud.answers[CENTRE, asked]
    assert isinstance(outcome, RefusedOutcome)
    assert outcome.code == NoSuchSubscription.code


def asked_together(cloud: Family) -> tuple[int, list[AskContract]]:
    """Two contracts of one request."""
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name, "c2/north/pmu/other"))
    words = [word for word in cloud.words if isinstance(word, AskContract)]
    return number, words[-2:]


def test_an_answer_tells_what_was_planned_anew_before_it_was_whole() -> None:
    cloud = family()
    number, (first, second) = asked_together(cloud)
    cloud.grant(first, paths=2)
    cloud.grant(first, paths=1, generation=1)
    cloud.say(ContractRefused(term=7, contract=second.contract, generation=0, refused=no_way()))
    granted, _ = cloud.answers[CENTRE, number]
    assert isinstance(granted, GrantedOutcome)
    assert len(granted.paths) == 1


def test_an_answer_grants_nothing_that_has_ended_before_it_was_whole() -> None:
    cloud = family()
    number, (first, second) = asked_together(cloud)
    cloud.grant(first)
    cloud.say(ContractEnded(term=7, contract=first.contract, refused=no_way()))
    cloud.say(ContractRefused(term=7, contract=second.contract, generation=0, refused=no_way()))
    assert cloud.answers[CENTRE, number] == (no_way(), no_way())


def no_way() -> RefusedOutcome:
    return RefusedOutcome(code=NoSuchVariable.code, reason="it is gone")


def test_what_an_end_point_waits_for_is_answered_when_it_leaves() -> None:
    """Else it would wait, in the broker's eyes, and have no room for more requests one day."""
    cloud = family()
    quotas = replace(cloud.settings.quotas, pending_requests_max=3)
    cloud.settings = replace(cloud.settings, quotas=quotas)
    cloud.kill_broker()
    cloud.start()
    cloud.lose_parent()
    for _ in range(4):
        asked = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
        cloud.settle()
        assert (CENTRE, asked) not in cloud.answers
        cloud.ask(CENTRE, "c1/e2", Detach())
        assert refusal(cloud.answers[CENTRE, asked]).code == ShuttingDown.code
        cloud.attach(CENTRE, "c1/e2", "c1/e3")


def test_what_it_asks_when_it_is_back_waits_on_while_its_leave_is_written() -> None:
    cloud = family()
    first = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    cloud.is_journal_held = True
    cloud.send(CENTRE, "c1/e2", Detach())
    cloud.send(CENTRE, "c1/e2", attach("c1/e2"))
    second = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.is_journal_held = False
    cloud.write()
    cloud.settle()
    assert refusal(cloud.answers[CENTRE, first]).code == ShuttingDown.code
    assert (CENTRE, second) not in cloud.answers
    cloud.grant(cloud.last(AskContract))
    assert isinstance(cloud.answers[CENTRE, second][0], GrantedOutcome)


def attach(edge: str) -> Attach:
    return Attach(
        edge=edge,
        certificate=f"endpoint/{CENTRE}".encode(),
        incarnation="a",
        first_time=True,
        host="10.1.0.1",
        data_port=5_000,
        urgent_port=5_001,
        datagram_versions=(1, 2, 3),
        security="hop",
    )
