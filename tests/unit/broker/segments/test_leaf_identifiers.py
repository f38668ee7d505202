"""Identifiers of variables that a cloud leases from its parent."""

from __future__ import annotations

import pytest

from gridstat.broker.settings import BrokerSettings
from gridstat.model.errors import LimitReached, ShuttingDown
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import Detach, PublishedOutcome, Unpublish
from gridstat.net.command.tree_messages import AskNumbers, JoinTree, NumbersLeased
from tests.unit.broker import conversation
from tests.unit.broker.conversation import pair, refusal
from tests.unit.broker.segments.family import Family, family
from tests.unit.broker.stand_ins import PMU, VOLTAGE, WALL_NS, publish, variable

OTHER = f"{PMU}/angle"


@pytest.fixture
def cloud() -> Family:
    """Cloud without any identifiers yet."""
    found = Family(numbers_at_once=2)
    found.start()
    found.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    return found


def number_of(cloud: Family, name: str) -> int:
    return cloud.broker.registry.publications[name].variable.variable_id


@pytest.mark.feature("S0-22")
def test_a_cloud_with_a_parent_names_variables_from_its_leased_block() -> None:
    assert family().publish(VOLTAGE, "c1/e0").variable_id == 10_000


def test_publications_wait_for_the_first_block(cloud: Family) -> None:
    number = cloud.send(PMU, "c1/e0", publish(variable(VOLTAGE)))
    cloud.settle()
    assert (PMU, number) not in cloud.answers
    cloud.join()
    assert isinstance(cloud.answers[PMU, number][0], PublishedOutcome)


def test_a_waiting_publication_whose_publisher_has_left_comes_to_nothing(cloud: Family) -> None:
    cloud.send(PMU, "c1/e0", publish(variable(VOLTAGE)))
    cloud.ask(PMU, "c1/e0", Detach())
    cloud.join()
    assert cloud.broker.registry.publications == {}


@pytest.mark.parametrize("incarnation", ["a", "b"])
def test_a_publication_waits_for_the_process_that_wanted_it_and_for_no_other(
    cloud: Family, incarnation: str
) -> None:
    """The second says another period, by another process or by the same that had left."""
    first = cloud.send(PMU, "c1/e0", publish(variable(VOLTAGE)))
    if incarnation == "a":
        cloud.ask(PMU, "c1/e0", Detach())
    cloud.lose(PMU, "c1/e0", "c1/e1")
    cloud.attach(PMU, "c1/e0", data_port=0, incarnation=incarnation)
    second = cloud.send(PMU, "c1/e0", publish(variable(VOLTAGE, period=Period(1, 10))))
    cloud.join()
    assert refusal(cloud.answers[PMU, first]).code == ShuttingDown.code
    assert isinstance(cloud.answers[PMU, second][0], PublishedOutcome)
    assert cloud.broker.registry.publications[VOLTAGE].variable.period == Period(1, 10)


def test_a_block_is_asked_for_once_as_long_as_it_does_not_come() -> None:
    cloud = Family(numbers_at_once=40)
    cloud.start()
    cloud.attach(PMU, "c1/e0", "c1/e1", data_port=0)
    cloud.join()
    names = [f"{PMU}/{number}" for number in range(38)]
    cloud.ask(PMU, "c1/e0", publish(*(variable(name) for name in names)))
    cloud.publish(VOLTAGE, "c1/e0")
    assert [word.request for word in cloud.heard(AskNumbers)] == [1, 2]
    cloud.lose_parent()
    cloud.join(is_leasing=False)
    assert [word.request for word in cloud.heard(AskNumbers)] == [1, 2, 2]


def test_the_next_block_is_asked_for_in_time_and_under_the_next_number(cloud: Family) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.publish(OTHER, "c1/e0")
    cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/more")))
    assert [word.request for word in cloud.heard(AskNumbers)][-1] == 2
    cloud.lease()
    cloud.settle()
    assert number_of(cloud, f"{PMU}/more") == 20_000


def test_a_block_that_is_leased_twice_is_one(cloud: Family) -> None:
    cloud.join()
    cloud.say(NumbersLeased(term=7, request=1, first=10_000, count=2))
    assert cloud.broker.registry.tree.blocks == [(10_000, 2)]


@pytest.mark.feature("S0-22")
def test_after_a_kill_no_identifier_is_given_twice(cloud: Family) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_001
    assert cloud.last(JoinTree).numbers_used == 0


@pytest.mark.feature("S0-22")
def test_an_identifier_is_used_again_only_after_its_quarantine(cloud: Family) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_001
    cloud.now_ns += cloud.settings.quarantine_ns
    assert cloud.publish(VOLTAGE, "c1/e0").variable_id == 10_000


@pytest.mark.feature("S0-22")
def test_after_a_kill_an_identifier_that_was_freed_before_rests_as_any_other(
    cloud: Family,
) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    cloud.now_ns += cloud.settings.quarantine_ns
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_000
    cloud.ask(PMU, "c1/e0", Unpublish(names=(OTHER,)))
    assert cloud.publish(VOLTAGE, "c1/e0").variable_id == 10_001


@pytest.mark.feature("S0-22")
def test_after_a_kill_an_identifier_in_its_second_use_is_given_to_nobody_else(
    cloud: Family,
) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    cloud.now_ns += cloud.settings.quarantine_ns
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_000
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    cloud.now_ns += cloud.settings.quarantine_ns
    assert cloud.publish(VOLTAGE, "c1/e0", period=Period(1, 30)).variable_id == 10_001


def test_a_publication_that_the_broker_fails_over_leaves_nothing_behind(
    cloud: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.join()
    cloud.may_fail = True
    with monkeypatch.context() as broken:
        broken.setattr(cloud.broker.reservations, "publish", _fail)
        cloud.ask(PMU, "c1/e0", publish(variable(VOLTAGE)))
    assert cloud.broker.registry.publications == {}
    assert isinstance(cloud.publish(VOLTAGE, "c1/e0").variable_id, int)


@pytest.mark.feature("S0-22")
def test_a_step_of_the_wall_clock_ends_no_quarantine(
    cloud: Family, monkeypatch: pytest.MonkeyPatch
) -> None:
    cloud.join()
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))
    monkeypatch.setattr(conversation, "WALL_NS", WALL_NS + 2 * cloud.settings.quarantine_ns)
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_001


def test_when_the_tree_has_none_left_a_publication_is_refused(cloud: Family) -> None:
    number = cloud.send(PMU, "c1/e0", publish(variable(VOLTAGE)))
    cloud.join(is_leasing=False)
    cloud.say(NumbersLeased(term=7, request=1, first=0, count=0))
    cloud.settle()
    assert refusal(cloud.answers[PMU, number]).code == LimitReached.code


def test_a_cloud_that_gets_a_parent_later_keeps_the_identifiers_that_it_has_given() -> None:
    lone = pair()
    lone.publish(VOLTAGE, "c1/e0")
    cloud = Family()
    cloud.journal = lone.journal
    cloud.routers = lone.routers
    cloud.kill_broker()
    cloud.start()
    cloud.join()
    assert cloud.last(JoinTree).numbers_used == 1
    assert number_of(cloud, VOLTAGE) == 1
    cloud.request_id = lone.request_id
    assert cloud.publish(OTHER, "c1/e0").variable_id == 10_000
    cloud.lose_parent()
    cloud.join()
    assert cloud.last(JoinTree).numbers_used == 1


def test_a_cloud_without_a_parent_counts_up_as_ever() -> None:
    lone = pair(settings=BrokerSettings("c1"))
    assert lone.publish(VOLTAGE, "c1/e0").variable_id == 1


def _fail(*_: object) -> None:
    raise AssertionError("as a stream_cost that was charged otherwise")
