"""A child that is away holds up a change, and no event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import Commit, ContractGranted, SegmentUp
from tests.unit.broker.tree.worlds import (
    VOLTAGE,
    deep_tree,
    inconsistencies,
    residue,
    two_clouds,
)

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld


def settle_until_commit(world: TreeWorld, child: str, generation: int) -> None:
    """Run until the parent has sent Commit to a child, which has not received it yet."""
    for _ in range(10_000):
        world.step()
        for _, receiver, message in world.queue:
            is_commit = isinstance(message, Commit) and message.generation == generation
            if is_commit and receiver == child:
                return
    raise AssertionError("no Commit")


def lose(world: TreeWorld, child: str) -> None:
    world.cut.add(child)
    world.disconnect(child)


def come_back(world: TreeWorld, child: str) -> None:
    world.cut.discard(child)
    world.rest()


def test_what_is_superseded_stays_until_a_child_that_is_away_has_confirmed_the_new() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.subscribe("c2/d", VOLTAGE, generation=1, redundancy=2)
    settle_until_commit(world, "c1", 1)
    lose(world, "c1")
    world.rest()
    granted = world.clouds["c2"].granted[contract]
    assert (granted.generation, granted.degraded) == (1, ("broker c1 has not confirmed yet",))
    assert set(world.clouds["c2"].segments) == {(contract, 0), (contract, 1)}
    come_back(world, "c1")
    assert set(world.clouds["c2"].segments) == {(contract, 1)}
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_broker_in_the_middle_is_not_up_because_time_has_passed() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c1/pmu/v")
    world.settle()
    world.subscribe("c4/d", "c1/pmu/v", generation=1, redundancy=2)
    settle_until_commit(world, "c1", 1)
    lose(world, "c1")
    world.rest()
    ups = [
        sender
        for sender, receiver, message in world.sent
        if isinstance(message, SegmentUp) and message.generation == 1 and receiver == "root"
    ]
    assert ups == ["east"]
    assert (contract, 0) in world.clouds["c4"].segments
    come_back(world, "c1")
    assert set(world.clouds["c4"].segments) == {(contract, 1)}
    assert inconsistencies(world) == []


def test_a_grant_that_waits_for_a_child_is_told_again_to_whoever_asks_again() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    settle_until_commit(world, "c1", 0)
    lose(world, "c1")
    world.advance(30 * NS_PER_S)
    assert contract in world.clouds["c2"].granted
    world.sent.clear()
    world.subscribe("c2/d", VOLTAGE)
    world.settle()
    said = [message for _, _, message in world.sent if isinstance(message, ContractGranted)]
    assert [found.degraded for found in said] == [("broker c1 has not confirmed yet",)]


def test_a_change_that_is_taken_back_while_it_is_planned_leaves_what_was_before() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    world.subscribe("c2/d", VOLTAGE, generation=1, redundancy=2)
    settle_until_commit(world, "c1", 1)
    world.subscribe("c2/d", VOLTAGE, generation=2)
    world.rest()
    granted = world.clouds["c2"].granted[contract]
    assert (granted.generation, granted.granted[0].redundancy) == (2, 1)
    assert set(world.clouds["c1"].segments) == {(contract, 2)}
    assert inconsistencies(world) == []
