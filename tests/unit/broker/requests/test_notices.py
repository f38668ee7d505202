"""Notices: by every edge where the end-point is, and again when it or its edge comes back."""

from __future__ import annotations

from typing import get_args

import pytest

from gridstat.broker.requests.notices import KEPT_BYTES_MAX, _Kept, _KeptNotices
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.endpoint_messages import (
    Matched,
    Notice,
    Unpublish,
    Unpublished,
    Unsubscribe,
)
from tests.unit.broker.conversation import Conversation, pair
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe


@pytest.fixture
def cloud() -> Conversation:
    found = pair()
    found.publish(VOLTAGE, "c1/e0")
    found.subscribe(CENTRE, "c1/e2", VOLTAGE)
    return found


def withdraw(cloud: Conversation) -> None:
    cloud.ask(PMU, "c1/e0", Unpublish(names=(VOLTAGE,)))


def heard(cloud: Conversation, kind: type[Notice]) -> int:
    return sum(isinstance(notice, kind) for notice in cloud.notices.get(CENTRE, []))


@pytest.mark.parametrize("kind", get_args(Notice))
def test_every_notice_names_the_subscription_that_a_repetition_needs(kind: type[Notice]) -> None:
    assert isinstance(kind.live_subscription_id, property)


def test_a_notice_goes_by_each_edge_that_has_the_end_point(cloud: Conversation) -> None:
    withdraw(cloud)
    assert heard(cloud, Unpublished) == 2


def test_a_notice_goes_by_the_edge_that_is_left(cloud: Conversation) -> None:
    cloud.lose(CENTRE, "c1/e2")
    withdraw(cloud)
    assert heard(cloud, Unpublished) == 1


def test_what_was_said_while_it_was_away_is_said_when_it_is_back(cloud: Conversation) -> None:
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    withdraw(cloud)
    assert heard(cloud, Unpublished) == 0
    cloud.attach(CENTRE, "c1/e2", first_time=False)
    assert heard(cloud, Unpublished) == 1


def test_what_was_said_while_its_edge_was_away_is_said_when_that_is_back(
    cloud: Conversation,
) -> None:
    for edge in ("c1/e2", "c1/e3"):
        cloud.disconnect(edge)
    withdraw(cloud)
    assert heard(cloud, Unpublished) == 0
    cloud.connect("c1/e2")
    assert heard(cloud, Unpublished) == 1


def test_old_notices_are_not_repeated(cloud: Conversation) -> None:
    withdraw(cloud)
    cloud.advance(60 * NS_PER_S)
    cloud.lose(CENTRE, "c1/e2")
    cloud.attach(CENTRE, "c1/e2", first_time=False)
    assert heard(cloud, Unpublished) == 2


def test_a_contract_that_has_ended_is_not_announced_again(cloud: Conversation) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    before = heard(cloud, Matched)
    cloud.ask(CENTRE, "c1/e2", Unsubscribe())
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    cloud.attach(CENTRE, "c1/e2", first_time=False)
    assert heard(cloud, Matched) == before > 0


def test_a_new_process_hears_nothing_of_the_old_one(cloud: Conversation) -> None:
    cloud.lose(CENTRE, "c1/e2", "c1/e3")
    withdraw(cloud)
    cloud.attach(CENTRE, "c1/e2", incarnation="b")
    assert heard(cloud, Unpublished) == 0


def test_notices_are_kept_within_a_bound_of_bytes() -> None:
    shelf = _KeptNotices()
    for number in range(9):
        shelf.add(_Kept(number, None, b"x" * (KEPT_BYTES_MAX // 3)), notices_max=256)
    assert [kept.sent_ns for kept in shelf.notices] == [6, 7, 8]
    shelf.add(_Kept(9, None, b"y"), notices_max=2)
    assert (len(shelf.notices), shelf.size_bytes) == (2, KEPT_BYTES_MAX // 3 + 1)
