"""Patterns across clouds that end while a broker is away: no watch of them is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.net.command.operator_messages import AddChild, RemoveChild
from gridstat.net.command.tree_messages import EndWatch, WatchNames
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.worlds import deep_tree

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

NAME, PATTERN = "c1#1", "c3/*"


def watching() -> TreeWorld:
    """A cloud below west watches for names of one below mid."""
    world = deep_tree()
    world.post("c1", "west", WatchNames(term=1, watch=NAME, pattern=PATTERN))
    world.settle()
    assert world.clouds["c3"].watched == {NAME: PATTERN}
    assert kept(world) == dict.fromkeys(("root", "west", "east", "mid"), 1)
    return world


def kept(world: TreeWorld) -> dict[str, int]:
    found = {name: each.machine.survey()["watches"] for name, each in world.brokers.items()}
    return {name: count for name, count in found.items() if count}


def end(world: TreeWorld) -> None:
    world.post("c1", "west", EndWatch(term=world.clouds["c1"].term, watch=NAME))
    world.settle()


def add_cloud(world: TreeWorld) -> None:
    world.operate("west", AddChild(request_id=0, name="c9"))
    world.clouds["c9"] = CloudStandIn("c9", "west")
    world.parents["c9"] = "west"
    world.settle()


@pytest.mark.parametrize("away", ["west", "east", "mid", "c3"])
def test_an_end_that_somebody_misses_is_made_up_for_when_it_joins(away: str) -> None:
    world = watching()
    world.cut.add(away)
    world.disconnect(away)
    end(world)
    world.cut.discard(away)
    world.rest()
    assert kept(world) == {}
    assert world.clouds["c3"].watched == {}


def test_what_a_cloud_does_not_say_again_after_a_join_has_ended() -> None:
    world = watching()
    world.disconnect("c1")
    world.rest()
    assert kept(world) == {}
    assert world.clouds["c3"].watched == {}


@pytest.mark.parametrize("away", ["west", "east", "mid", "c3"])
def test_what_has_not_ended_is_watched_on_after_a_join(away: str) -> None:
    world = watching()
    world.disconnect(away)
    world.rest()
    assert kept(world) == dict.fromkeys(("root", "west", "east", "mid"), 1)
    assert world.clouds["c3"].watched == {NAME: PATTERN}


def test_clouds_that_change_below_a_child_end_nothing_that_it_watches() -> None:
    world = watching()
    add_cloud(world)
    assert "c9" in world.brokers["root"].machine.state.families.clouds()
    assert world.clouds["c3"].watched == {NAME: PATTERN}


def test_an_end_of_what_a_broker_does_not_know_is_passed_on_upwards() -> None:
    world = deep_tree()
    end(world)
    assert ("west", "root", EndWatch) in [(one, to, type(word)) for one, to, word in world.sent]


def test_a_child_that_is_removed_watches_for_nothing() -> None:
    world = deep_tree()
    add_cloud(world)
    west = world.brokers["west"]
    world.post("c9", "west", WatchNames(term=1, watch="c9#1", pattern=PATTERN))
    world.settle()
    assert west.machine.survey()["watches"] == 1
    world.cut.add("c9")
    assert world.operate("west", RemoveChild(request_id=0, name="c9")).refused is None
    world.rest()
    assert kept(world) == {}
