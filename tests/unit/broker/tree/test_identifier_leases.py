"""Identifiers of variables in a tree that has grown: no two clouds ever have the same."""

from __future__ import annotations

from dataclasses import replace

from gridstat.broker.tree.tree_settings import TreeSettings
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld
from tests.unit.broker.tree.worlds import deep_tree

SMALL = TreeSettings(name="", numbers_block=100)


def lease(world: TreeWorld, cloud: str, request: int, count: int = 40) -> range:
    found = world.clouds[cloud]
    found.ask_numbers(request, count)
    world.say(cloud)
    world.rest()
    block = found.numbers[request]
    return range(block.first, block.first + block.count)


def grown(*, numbers_used: int = 0) -> TreeWorld:
    """West has c1 and is alone at first, as is root with c3."""
    clouds = [CloudStandIn("c1", "west", numbers_used=numbers_used), CloudStandIn("c3", "root")]
    brokers = {"root": ("", ("west", "c3"), ()), "west": ("", ("c1",), ())}
    return TreeWorld(brokers, clouds, SMALL).start()


def put_below_root(world: TreeWorld, broker: str) -> None:
    process = world.brokers[broker]
    process.settings = replace(process.settings, parent="root")
    world.parents[broker] = "root"
    world.kill(broker)
    world.rest()


def test_a_broker_with_a_parent_turns_away_a_cloud_whose_identifiers_others_may_have() -> None:
    world = deep_tree(SMALL)
    lease(world, "c3", 1)
    world.disconnect("c1")
    world.clouds["c1"].numbers_used = 500
    world.settle()
    assert not world.clouds["c1"].is_joined
    ((peer, why),) = world.closed
    assert peer == "broker/c1"
    assert "let it join a broker without a parent" in why
    world.disconnect("west")
    world.rest()
    assert world.brokers["west"].machine.survey()["is_joined"]
    assert world.clouds["c2"].is_joined


def test_a_cloud_that_joined_a_broker_alone_keeps_its_identifiers_when_that_gets_a_parent() -> None:
    world = grown(numbers_used=30)
    put_below_root(world, "west")
    assert world.closed == []
    assert world.clouds["c1"].is_joined
    assert lease(world, "c3", 1).start == 31


def test_what_a_broker_gave_out_as_a_root_is_given_to_nobody_else_when_it_gets_a_parent() -> None:
    world = grown()
    before = lease(world, "c1", 1)
    put_below_root(world, "west")
    assert world.clouds["c1"].is_joined
    assert not set(before) & set(lease(world, "c3", 1))


def test_a_snapshot_does_not_take_leased_identifiers_for_those_of_a_root() -> None:
    world = deep_tree(SMALL)
    lease(world, "c3", 1)
    before = lease(world, "c1", 1)
    west = world.brokers["west"]
    west.written = west.machine.snapshot()
    world.kill("west")
    world.rest()
    assert west.machine.state.numbers.last == 0
    assert west.machine.survey()["is_joined"]
    assert lease(world, "c1", 1) == before
