"""A broker that is started without the parent that it had, and perhaps with it again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_operations import Placed
from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.net.command.machine import Note
from gridstat.net.command.tree_messages import TreeJoined
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.scripted_root import below_scripted_root
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, residue

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_state import TreeState

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
    """Restore a broker that had given out all identifiers before it was leased any."""
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
    abstract_link = world.subscribe("c4/d", VOLTAGE, redundancy=2)
    inside = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    assert abstract_link in world.clouds["c4"].granted
    start_below(world, "west", "")
    held = [holding.contract for holding, _ in west_of(world).holdings.all()]
    assert held == [inside]
    for cloud in ("c1", "c2"):
        assert {contract for contract, _ in world.clouds[cloud].segments} == {inside}
    assert west_of(world).depth == 0
    assert world.clouds["c1"].above == ("west",)
    world.end(inside)
    world.rest()
    assert not [found for found in residue(world) if found.startswith("west")]


def test_a_broker_that_finds_its_parent_again_serves_it_as_before() -> None:
    world = deep_tree()
    abstract_link = world.subscribe("c4/d", VOLTAGE, redundancy=2)
    inside = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    start_below(world, "west", "")
    start_below(world, "west", "root")
    assert world.closed == []
    assert world.clouds["c1"].above == ("root", "west")
    assert {abstract_link, inside} <= world.clouds["c4"].granted.keys() | world.clouds["c2"].granted
    assert inconsistencies(world) == []
    for contract in (abstract_link, inside):
        world.end(contract)
    world.rest()
    assert residue(world) == []


# With another parent.


def two_trees() -> TreeWorld:
    """West below root; other is a root of its own, with channels to west's clouds."""
    owners = {"c1": "west", "c2": "west", "c3": "root", "c5": "other"}
    clouds = [CloudStandIn(name, parent) for name, parent in owners.items()]
    brokers = {
        "root": ("", ("west", "c3"), both_ways("c2/r", "c3/r")),
        "other": ("", ("c5", "west"), both_ways("c2/r", "c5/r")),
        "west": ("root", ("c1", "c2"), both_ways("c1/w", "c2/w")),
    }
    world = TreeWorld(brokers, clouds, SMALL)
    world.parents["west"] = "root"
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    return world.start()


def test_a_broker_can_be_given_another_parent_that_was_started_less_often() -> None:
    world = two_trees()
    for _ in range(4):
        world.kill("root")
        world.settle()
    old = world.subscribe("c3/d", VOLTAGE)
    world.rest()
    assert old in world.clouds["c3"].granted
    start_below(world, "west", "other")
    assert world.closed == []
    assert world.clouds["c1"].above == ("other", "west")
    assert not world.clouds["c1"].segments, "what was held for the parent before is given back"
    new = world.subscribe("c5/d", VOLTAGE)
    world.rest()
    assert new in world.clouds["c5"].granted
    placed = west_of(world).placed
    assert placed is not None
    assert placed.parent == "other"


def test_a_parent_of_a_lower_term_than_the_last_is_refused_after_a_restart_too() -> None:
    world, _ = below_scripted_root()
    world.post("root", "west", TreeJoined(term=40, depth=1, above=("root",)))
    world.settle()
    world.kill("west")
    world.settle()
    ((peer, reason),) = world.closed
    assert peer == "broker/root"
    assert "has sent term 1, although it sent 40 before" in reason


def test_the_term_in_a_journal_of_an_earlier_release_is_that_of_the_last_one_above() -> None:
    placed = Placed(term=40, depth=2, above=("top", "root"))
    assert placed.is_below("root")
    assert not placed.is_below("other")


def test_identifiers_of_one_tree_are_not_taken_to_another() -> None:
    world = two_trees()
    lease(world, "c1", 1)
    start_below(world, "west", "other")
    ((peer, reason),) = world.closed
    assert peer == "broker/other"
    assert "are leased in the tree of root" in reason
    start_below(world, "west", "")
    world.cut.clear()
    start_below(world, "west", "other")
    assert len(world.closed) == 2, "nor by way of a life without a parent"
    world.cut.clear()
    start_below(world, "west", "root")
    assert len(world.closed) == 2
    assert world.clouds["c1"].above == ("root", "west")


def test_brokers_below_one_that_has_lost_its_parent_stay_with_it() -> None:
    world = deep_tree(SMALL)
    lease(world, "c3", 1)
    for parent, above in (("", ("east", "mid")), ("root", ("root", "east", "mid"))):
        start_below(world, "east", parent)
        assert world.closed == []
        assert world.clouds["c3"].above == above
