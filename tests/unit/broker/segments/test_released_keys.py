"""A generation that was released may be reserved again: of its later end the parent hears."""

from __future__ import annotations

import pytest

from gridstat.model.errors import StorageFailed
from gridstat.net.command.endpoint_messages import Unpublish
from gridstat.net.command.segment_messages import (
    NotReserved,
    Release,
    Released,
    Reserved,
    SegmentBroken,
)
from tests.unit.broker.segments.family import EXITS, Family, family
from tests.unit.broker.stand_ins import PMU, VOLTAGE

CONTRACT = "c2#4"


@pytest.fixture
def cloud() -> Family:
    return family()


def begin(cloud: Family) -> None:
    cloud.reserve(CONTRACT, variable=cloud.publish(VOLTAGE, "c1/e0"), exits=EXITS)


def withdraw(cloud: Family) -> None:
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))


def test_the_end_of_what_was_reserved_in_a_second_round_is_told(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS)
    cloud.release(CONTRACT)
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS[:1])
    cloud.commit(CONTRACT)
    assert cloud.heard(SegmentBroken) == []
    withdraw(cloud)
    assert [word.is_over for word in cloud.heard(SegmentBroken)] == [True]


def test_the_end_is_told_where_an_earlier_one_came_before_its_release_was_due(
    cloud: Family,
) -> None:
    begin(cloud)
    cloud.commit(CONTRACT)
    cloud.say(Release(term=7, contract=CONTRACT, generation=0))
    withdraw(cloud)
    cloud.advance(cloud.settings.release_after_ns)
    assert cloud.last(Released).contract == CONTRACT
    begin(cloud)
    cloud.commit(CONTRACT)
    before = len(cloud.heard(SegmentBroken))
    withdraw(cloud)
    assert [word.is_over for word in cloud.heard(SegmentBroken)[before:]] == [True]


def test_what_the_parent_has_released_ends_without_a_word(cloud: Family) -> None:
    begin(cloud)
    cloud.commit(CONTRACT)
    cloud.release(CONTRACT)
    assert cloud.last(Released).contract == CONTRACT
    assert cloud.heard(SegmentBroken) == []


def test_what_is_given_back_while_it_is_written_is_not_said_to_be_held(cloud: Family) -> None:
    voltage = cloud.publish(VOLTAGE, "c1/e0")
    cloud.is_journal_held = True
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS)
    cloud.release(CONTRACT)
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS[:1])
    cloud.write(1)
    assert cloud.heard(Reserved) == []
    cloud.write()
    assert [len(word.paths) for word in cloud.heard(Reserved)] == [1]


def test_the_end_is_told_of_what_could_not_be_reserved_anew(cloud: Family) -> None:
    begin(cloud)
    cloud.commit(CONTRACT)
    cloud.is_disk_full = True
    voltage = cloud.broker.registry.publications[VOLTAGE].variable
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS[:1])
    cloud.is_disk_full = False
    withdraw(cloud)
    assert [word.is_over for word in cloud.heard(SegmentBroken)] == [True]


def test_what_was_released_and_could_not_be_reserved_anew_is_given_back(cloud: Family) -> None:
    begin(cloud)
    cloud.commit(CONTRACT)
    cloud.say(Release(term=7, contract=CONTRACT, generation=0))
    cloud.is_disk_full = True
    voltage = cloud.broker.registry.publications[VOLTAGE].variable
    cloud.reserve(CONTRACT, variable=voltage, exits=EXITS)
    cloud.is_disk_full = False
    assert cloud.last(NotReserved).refused.code == StorageFailed.code
    cloud.advance(cloud.settings.release_after_ns)
    assert cloud.last(Released).contract == CONTRACT
    assert cloud.broker.registry.tree.segments == {}


def test_a_release_that_is_due_does_not_take_what_was_reserved_since(cloud: Family) -> None:
    begin(cloud)
    cloud.commit(CONTRACT)
    cloud.say(Release(term=7, contract=CONTRACT, generation=0, round=1))
    withdraw(cloud)
    begin(cloud)
    assert cloud.last(Released).round == 1
    cloud.advance(2 * cloud.settings.release_after_ns)
    assert cloud.broker.registry.tree.segment(CONTRACT, 0)
    assert len(cloud.heard(Released)) == 1
