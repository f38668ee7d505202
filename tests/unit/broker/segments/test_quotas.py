"""Quotas of end-points for contracts with other clouds, whether or not the parent is there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.broker.settings import Quotas
from gridstat.model.errors import QuotaReached
from gridstat.net.command.endpoint_messages import Outcome, RefusedOutcome, Unsubscribe
from gridstat.net.command.segment_messages import ContractEnded, EndContract
from gridstat.net.command.tree_messages import NamesFound, WatchNames
from tests.unit.broker.segments.family import FAR, Family
from tests.unit.broker.stand_ins import CENTRE, PMU, subscribe

MOST = 3


def cloud_of(**quotas: int) -> Family:
    """The parent is away."""
    found = Family()
    found.settings = replace(found.settings, quotas=Quotas(**quotas))
    found.broker = found.new_broker()
    found.start()
    found.attach(CENTRE, "c1/e2")
    return found


def come_and_go(cloud: Family, endpoint: str, edge: str, count: int) -> None:
    for _ in range(count):
        cloud.send(endpoint, edge, subscribe(FAR.name))
        cloud.ask(endpoint, edge, Unsubscribe(subscription_ids=()))


def is_full(outcomes: tuple[Outcome, ...]) -> bool:
    return any(
        isinstance(one, RefusedOutcome) and one.code == QuotaReached.code for one in outcomes
    )


def test_what_was_ended_while_the_parent_is_away_counts_until_it_is_told() -> None:
    cloud = cloud_of(subscriptions_max=MOST)
    come_and_go(cloud, CENTRE, "c1/e2", 2 * MOST)
    assert len(cloud.broker.registry.tree.asked) == MOST
    assert is_full(cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name)))
    cloud.join()
    for word in cloud.heard(EndContract):
        cloud.say(ContractEnded(term=7, contract=word.contract))
    assert cloud.broker.registry.tree.asked == {}
    assert cloud.broker.registry.tree.ending_by == {}
    assert not is_full(cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name)))


def test_what_was_ended_counts_after_a_kill_too() -> None:
    cloud = cloud_of(subscriptions_max=MOST)
    come_and_go(cloud, CENTRE, "c1/e2", MOST)
    cloud.journal = cloud.broker.snapshot()
    cloud.kill_broker()
    cloud.start()
    assert is_full(cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name)))


def test_an_end_that_the_disk_does_not_take_is_not_counted() -> None:
    cloud = cloud_of(subscriptions_max=MOST)
    cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.is_disk_full = True
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=()))
    assert cloud.broker.registry.tree.ending_by == {}


def test_all_end_points_of_a_cloud_have_a_bound_together() -> None:
    cloud = cloud_of(contracts_elsewhere_max=MOST)
    cloud.attach(PMU, "c1/e0")
    come_and_go(cloud, CENTRE, "c1/e2", MOST - 1)
    come_and_go(cloud, PMU, "c1/e0", MOST)
    assert len(cloud.broker.registry.tree.asked) == MOST


@pytest.mark.parametrize("kind", ["subscriptions_max", "contracts_elsewhere_max"])
def test_a_pattern_asks_for_no_more_than_there_is_room_for(kind: str) -> None:
    cloud = cloud_of(**{kind: MOST})
    come_and_go(cloud, CENTRE, "c1/e2", MOST - 1)
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/**"))
    cloud.join()
    names = tuple(f"c2/p/v{at}" for at in range(MOST))
    cloud.say(NamesFound(term=7, watch=cloud.last(WatchNames).watch, names=names))
    assert len(cloud.broker.registry.tree.asked) == MOST
