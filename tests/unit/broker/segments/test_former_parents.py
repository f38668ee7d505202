"""A cloud that is started without the parent that it had, and one whose parent is only away."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gridstat.model.errors import NoSuchSubscription, NoSuchVariable
from gridstat.model.rate_law import NS_PER_S, Period
from gridstat.net.command.endpoint_messages import (
    ChangePublication,
    PublishedOutcome,
    Unpublished,
)
from gridstat.net.command.machine import Connected, Received
from gridstat.net.command.segment_messages import AskContract, EndContract, SegmentsHeld
from gridstat.net.command.session_messages import Hello
from gridstat.net.command.tree_messages import TreeJoined
from tests.unit.broker.conversation import refusal
from tests.unit.broker.segments.family import ENTRIES, EXITS, FAR, Family, family
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, subscribe

FIRST, TRANSIT, RESERVED = "c2#7", "c2#8", "c2#9"


@pytest.fixture
def cloud() -> Family:
    """A cloud with a contract of its own elsewhere, and three segments for other clouds."""
    found = family()
    variable = found.publish(VOLTAGE, "c1/e0")
    found.ask(CENTRE, "c1/e2", subscribe(FAR.name))
    found.grant(found.last(AskContract))
    found.reserve(FIRST, variable=variable, exits=EXITS[:1])
    found.commit(FIRST)
    found.reserve(TRANSIT, entries=ENTRIES[:1], exits=EXITS[1:])
    found.commit(TRANSIT)
    found.reserve(RESERVED, variable=variable, exits=EXITS[1:])
    assert len(found.broker.registry.tree.segments) == 4
    return found


def restart(cloud: Family, *, parent: str) -> None:
    cloud.notices.clear()
    cloud.settings = replace(cloud.settings, parent=parent)
    cloud.kill_broker()
    cloud.start()
    cloud.advance(NS_PER_S)
    cloud.settle()


def test_a_start_without_the_parent_ends_all_segments_and_contracts_across_clouds(
    cloud: Family,
) -> None:
    held = list(cloud.broker.registry.subscriptions)
    restart(cloud, parent="")
    tree, reservations = cloud.broker.registry.tree, cloud.broker.reservations
    assert not cloud.broker.registry.subscriptions
    assert not tree.segments
    assert not tree.asked
    assert not tree.borders
    assert not [number for number in held if reservations.holds(number)]
    assert not cloud.differing()
    assert not [order for name in cloud.routers for order in cloud.path_orders(name)]


def test_the_end_of_what_a_former_parent_held_is_durable(cloud: Family) -> None:
    restart(cloud, parent="")
    cloud.kill_broker()
    tree = cloud.broker.registry.tree
    assert not cloud.broker.registry.subscriptions
    assert (tree.segments, tree.asked, tree.borders) == ({}, {}, {})


def test_a_subscriber_is_notified_why_its_contract_with_another_cloud_ends(cloud: Family) -> None:
    (number,) = cloud.broker.registry.tree.asked
    restart(cloud, parent="")
    notices = {notice for notice in cloud.notices[CENTRE] if isinstance(notice, Unpublished)}
    (notice,) = notices
    assert (notice.subscription_id, notice.name, notice.is_over) == (number, FAR.name, True)
    assert notice.code == NoSuchVariable.code
    assert (
        notice.reason == "cloud c1 was started without a parent, by which it reached other clouds"
    )
    assert PMU not in cloud.notices


def test_a_period_can_change_after_a_start_without_the_parent(cloud: Family) -> None:
    restart(cloud, parent="")
    command = ChangePublication(name=VOLTAGE, period=Period(1, 30))
    outcome = cloud.only(PublishedOutcome, cloud.ask(PMU, "c1/e0", command))
    assert outcome.variable.period == Period(1, 30)


def test_a_request_that_waits_for_another_cloud_is_refused_at_a_start_without_the_parent(
    cloud: Family,
) -> None:
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name))
    cloud.settle()
    restart(cloud, parent="")
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name), request_id=number)
    assert refusal(outcomes).code == NoSuchSubscription.code
    assert not cloud.broker.registry.tree.begun


def test_an_answer_that_has_begun_names_no_contract_that_has_ended_meanwhile(cloud: Family) -> None:
    """The first variable is granted, the answer waits for the second."""
    other = "c2/south/pmu/voltage"
    number = cloud.send(CENTRE, "c1/e2", subscribe(FAR.name, other))
    cloud.settle()
    first, _ = cloud.heard(AskContract)[-2:]
    cloud.grant(first)
    restart(cloud, parent="")
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe(FAR.name, other), request_id=number)
    assert [type(outcome).__name__ for outcome in outcomes] == ["RefusedOutcome"] * 2
    assert "without a parent" in refusal(outcomes[:1]).reason


def test_a_full_disk_delays_the_ends_at_a_start_without_the_parent(cloud: Family) -> None:
    cloud.notices.clear()
    cloud.settings = replace(cloud.settings, parent="")
    cloud.kill_broker()
    cloud.is_disk_full = True
    cloud.start()
    assert len(cloud.broker.registry.tree.segments) == 4
    assert CENTRE not in cloud.notices
    cloud.is_disk_full = False
    cloud.advance(10 * NS_PER_S)
    assert not cloud.broker.registry.tree.segments
    assert len({repr(notice) for notice in cloud.notices[CENTRE]}) == 1


def test_a_cloud_whose_parent_is_only_away_keeps_everything(cloud: Family) -> None:
    before = cloud.broker.registry.subscriptions.keys(), {*cloud.broker.registry.tree.asked}
    restart(cloud, parent="root")
    cloud.advance(3_600 * NS_PER_S)
    tree = cloud.broker.registry.tree
    assert (cloud.broker.registry.subscriptions.keys(), {*tree.asked}) == before
    assert len(tree.segments) == len(tree.borders) == 4


def test_a_cloud_that_has_its_parent_again_reports_that_it_holds_nothing(cloud: Family) -> None:
    own = cloud.last(AskContract).contract
    granted = cloud.broker.registry.tree.asked[1].granted
    restart(cloud, parent="")
    restart(cloud, parent="root")
    cloud.words.clear()
    cloud.join()
    assert [page.held for page in cloud.heard(SegmentsHeld)] == [()]
    assert len(cloud.broker.registry.tree.borders) == 4
    assert granted is not None
    cloud.say(granted)
    assert cloud.last(EndContract).contract == own


def test_another_parent_is_joined_though_its_term_is_lower_than_that_of_the_former_one(
    cloud: Family,
) -> None:
    restart(cloud, parent="north")
    cloud.tell(Connected("broker/north", Hello(role="broker", name="north", instance="1")))
    cloud.tell(Received("broker/north", TreeJoined(term=1, depth=2, above=("top", "north"))))
    cloud.settle()
    tree = cloud.broker.registry.tree
    assert cloud.parent_term > 1
    assert (tree.parent_term, tree.above) == (1, ("top", "north"))
    assert cloud.notes[-1].word == "tree_joined"

    restart(cloud, parent="north")
    assert cloud.broker.registry.tree.term_of("north") == 1
    assert cloud.broker.registry.tree.term_of("root") == 0
