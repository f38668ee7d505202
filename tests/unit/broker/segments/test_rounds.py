"""Each answer to a parent carries the round of the question, or of the release, that it is for."""

from __future__ import annotations

import pytest
from msgspec import structs

from gridstat.net.command.segment_messages import (
    Commit,
    NotReserved,
    Release,
    Released,
    Reserve,
    Reserved,
)
from tests.unit.broker.segments.family import EXITS, Family, family, quality
from tests.unit.broker.stand_ins import VOLTAGE

CONTRACT = "c2#4"


@pytest.fixture
def cloud() -> Family:
    return family()


def question(cloud: Family, number: int) -> Reserve:
    return Reserve(
        term=7,
        contract=CONTRACT,
        generation=0,
        variable=cloud.publish(VOLTAGE, "c1/e0"),
        granted=quality(),
        exits=EXITS[:1],
        round=number,
    )


def release(number: int) -> Release:
    return Release(term=7, contract=CONTRACT, generation=0, round=number)


def rounds(cloud: Family, kind: type[Reserved | NotReserved | Released]) -> list[int]:
    return [word.round for word in cloud.heard(kind)]


def test_a_reservation_is_told_in_the_round_that_asks_for_it(cloud: Family) -> None:
    asked = question(cloud, 1)
    cloud.say(asked)
    cloud.say(structs.replace(asked, round=2))
    assert rounds(cloud, Reserved) == [1, 2]


def test_a_refusal_is_told_in_its_round(cloud: Family) -> None:
    asked = question(cloud, 3)
    cloud.say(structs.replace(asked, granted=quality(latency_us=1)))
    assert rounds(cloud, NotReserved) == [3]


def test_what_is_given_back_at_once_is_told_in_the_round_that_asks_for_it(cloud: Family) -> None:
    cloud.say(question(cloud, 1))
    for number in (4, 5):
        cloud.say(release(number))
    assert rounds(cloud, Released) == [4, 5]


def test_what_is_given_back_later_is_told_in_the_last_round(cloud: Family) -> None:
    cloud.say(question(cloud, 1))
    cloud.say(Commit(term=7, contract=CONTRACT, generation=0))
    for number in (6, 7):
        cloud.say(release(number))
    cloud.advance(cloud.settings.release_after_ns)
    assert rounds(cloud, Released) == [7]


def test_what_is_asked_for_again_before_it_is_due_is_told_in_both_rounds(cloud: Family) -> None:
    asked = question(cloud, 1)
    cloud.say(asked)
    cloud.say(Commit(term=7, contract=CONTRACT, generation=0))
    cloud.say(release(8))
    cloud.say(structs.replace(asked, round=9))
    assert rounds(cloud, Released) == [8]
    assert rounds(cloud, Reserved) == [1, 9]
