"""A broker that is started without the parent that it had, and perhaps with it again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.settings import TreeSettings
from gridstat.net.command.machine import Note
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, residue

if TYPE_CHECKING:
    from gridstat.broker.tree.state import TreeState

SMALL = TreeSettings(name="", numbers_block=100)


def lease(world: TreeWorld, cloud: str, request: int, count: int = 40) -> range:
    found = world.clouds[cloud]
    found.ask_numbers(request, count)
    world.say(cloud)
    world.rest()
    block = found.numbers[request]
    return range(block.first, block.first + block.count)


def start_below(world: TreeWorld, name: str, parent: str) -> None:
    """A new life of a broker with this parent, or with none."""
    if world.parents[name]:
        world.disconnect(name)
    process = world.brokers[name]
    process.settings = replace(process.settings, parent=parent)
    world.parents[name] = parent
    world.kill(name)
    world.rest()


def west_of(world: TreeWorld) -> TreeState:
    return world.brokers["west"].machine.state


def test_a_broker_without_its_parent_gives_no_identifier_twice() -> None:
    world = deep_tree(SMALL)
    given = set(lease(world, "c1", 1)) | set(lease(world, "c3", 1))
    start_below(world, "west", "")
    rest_of_lease = set(lease(world, "c2", 1))
    assert len(rest_of_lease) == 40
    assert not rest_of_lease & given
    assert lease(world, "c2", 2) == range(0), "what is left of the lease is too small"
    assert Note("numbers_used_up", (("child", "c2"), ("tree", "root"))) in (
        world.brokers["west"].notes
    )
    start_below(world, "west", "root")
    more = set(lease(world, "c2", 3))
    assert len(more) == 40
    assert not more & (given | rest_of_lease)


def test_a_snapshot_remembers_that_a_broker_had_a_parent() -> None:
    """It has given everything out before it was leased anything, and gives no more."""
    clouds = [CloudStandIn("c1", "west"), CloudStandIn("c3", "root")]
    brokers = {"root": ("", ("west", "c3"), ()), "west": ("root", ("c1",), ())}
    world = TreeWorld(brokers, clouds, SMALL).start()
    world.rest()
    start_below(world, "west", "")
    west = world.brokers["west"]
    west.written = west.machine.snapshot()
    world.kill("west")
    world.rest()
    assert len(lease(world, "c3", 1)) == 40
    assert lease(world, "c1", 1) == range(0)


def test_a_cloud_with_identifiers_of_its_own_does_not_join_a_broker_that_had_a_parent() -> None:
    clouds = [CloudStandIn("c1", "west", numbers_used=30), CloudStandIn("c3", "root")]
    brokers = {"root": ("", ("west", "c3"), ()), "west": ("root", ("c1",), ())}
    world = TreeWorld(brokers, clouds, SMALL)
    world.cut.add("c1")
    world.start()
    start_below(world, "west", "")
    world.cut.clear()
    world.rest()
    ((peer, reason),) = world.closed
    assert peer == "broker/c1"
    assert "others may have the same" in reason


def test_a_broker_that_starts_without_its_parent_gives_back_what_it_held_for_it() -> None:
    world = deep_tree()
    crossing = world.subscribe("c4/d", VOLTAGE, redundancy=2)
    inside = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    assert crossing in world.clouds["c4"].granted
    start_below(world, "west", "")
    held = [holding.contract for holding, _ in west_of(world).holdings.all()]
    assert held == [inside]
    for cloud in ("c1", "c2"):
        assert {contract for contract, _ in world.clouds[cloud].stretches} == {inside}
    assert west_of(world).depth == 0
    assert world.clouds["c1"].above == ("west",)
    world.end(inside)
    world.rest()
    assert not [found for found in residue(world) if found.startswith("west")]


def test_a_broker_that_finds_its_parent_again_serves_it_as_before() -> None:
    world = deep_tree()
    crossing = world.subscribe("c4/d", VOLTAGE, redundancy=2)
    inside = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    start_below(world, "west", "")
    start_below(world, "west", "root")
    assert world.closed == []
    assert world.clouds["c1"].above == ("root", "west")
    assert {crossing, inside} <= world.clouds["c4"].granted.keys() | world.clouds["c2"].granted
    assert inconsistencies(world) == []
    for contract in (crossing, inside):
        world.end(contract)
    world.rest()
    assert residue(world) == []
