"""Patterns across clouds: those of our end-points, and those of others in this cloud."""

from __future__ import annotations

import pytest

from gridstat.net.command.endpoint_messages import (
    GrantedOutcome,
    Matched,
    RefusedOutcome,
    Unsubscribe,
)
from gridstat.net.command.segment_messages import (
    AskContract,
    EndContract,
)
from gridstat.net.command.tree_messages import EndWatch, NamesFound, WatchNames
from tests.unit.broker.conversation import Conversation
from tests.unit.broker.segments.counted import Counted
from tests.unit.broker.segments.family import FAR, Family, family
from tests.unit.broker.stand_ins import CENTRE, PMU, VOLTAGE, publish, subscribe, variable

NO = RefusedOutcome(code=1039, reason="full", bottleneck="channel c2/a→c2/b")


@pytest.fixture
def cloud() -> Family:
    return family()


def test_a_pattern_catches_variables_of_other_clouds(cloud: Family) -> None:
    outcomes = cloud.ask(CENTRE, "c1/e2", subscribe("*/south/pmu/current"))
    pattern_id = Conversation.only(GrantedOutcome, outcomes).subscription_id
    watch = cloud.last(WatchNames)
    assert (watch.watch, watch.pattern) == (f"c1#{pattern_id}", "*/south/pmu/current")

    for _ in range(2):
        cloud.say(NamesFound(term=7, watch=watch.watch, names=(FAR.name, "c2/else/x")))
    (asked,) = cloud.heard(AskContract)
    cloud.grant(asked)
    notice = cloud.notices[CENTRE][-1]
    assert isinstance(notice, Matched)
    assert notice.pattern_id == pattern_id
    assert notice.granted.variable == FAR

    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(pattern_id,)))
    assert cloud.last(EndContract).contract == asked.contract
    cloud.say(NamesFound(term=7, watch=watch.watch, names=(FAR.name,)))
    assert cloud.last(EndWatch).watch == watch.watch


def test_a_pattern_of_this_cloud_alone_is_no_business_of_the_parent(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c1/**"))
    assert cloud.heard(WatchNames) == []


def test_patterns_are_watched_again_after_a_join(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/**"))
    cloud.lose_parent()
    cloud.join()
    assert len(cloud.heard(WatchNames)) == 2


def test_a_pattern_of_another_cloud_finds_what_is_published_now_and_later(cloud: Family) -> None:
    cloud.publish(VOLTAGE, "c1/e0")
    cloud.say(WatchNames(term=7, watch="c5#1", pattern="*/north/**"))
    assert cloud.last(NamesFound).names == (VOLTAGE,)
    cloud.ask(PMU, "c1/e0", publish(variable(f"{PMU}/angle")))
    found = cloud.last(NamesFound)
    assert (found.watch, found.names) == ("c5#1", (f"{PMU}/angle",))

    cloud.say(EndWatch(term=7, watch="c5#1"))
    cloud.publish(f"{PMU}/phase", "c1/e0")
    assert cloud.last(NamesFound) == found


def test_a_name_that_is_found_costs_no_look_at_all_that_was_found_before(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/**"))
    watch, tree = cloud.last(WatchNames).watch, cloud.broker.registry.tree
    names = tuple(f"c2/p/v{at}" for at in range(100))
    cloud.say(NamesFound(term=7, watch=watch, names=names))
    tree.asked = asked = Counted(tree.asked)
    cloud.say(NamesFound(term=7, watch=watch, names=("c2/p/more", names[0], "c2/p/more")))
    assert len(asked) == len(names) + 1
    assert asked.looks < len(names)


def test_a_name_whose_contract_has_ended_is_asked_for_again(cloud: Family) -> None:
    cloud.ask(CENTRE, "c1/e2", subscribe("c2/**"))
    watch, tree = cloud.last(WatchNames).watch, cloud.broker.registry.tree
    found = NamesFound(term=7, watch=watch, names=("c2/p/v",))
    cloud.say(found)
    (number,) = tree.asked
    cloud.ask(CENTRE, "c1/e2", Unsubscribe(subscription_ids=(number,)))
    assert tree.matched_names == {}
    cloud.say(found)
    assert len(tree.asked) == 2
