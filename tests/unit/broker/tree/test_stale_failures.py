"""Failures that are over before the broker that reported them comes back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import Commit, SegmentBroken, SegmentRestored
from tests.unit.broker.tree.cloud_stand_in import CloudStandIn
from tests.unit.broker.tree.tree_world import TreeWorld, both_ways, variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, residue, row_of_clouds, two_clouds

if TYPE_CHECKING:
    from gridstat.net.command.messages import Message
    from gridstat.net.command.segment_messages import Release, Reserve


def test_a_child_that_joins_again_says_anew_what_is_broken_and_the_rest_is_whole() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    root = world.brokers["root"].machine
    told = SegmentBroken(term=1, contract=contract, generation=0, reason="gone", broken=())
    cloud = world.clouds["c1"]
    cloud.closed_ways.update({("c1/edge", "c1/b0"), ("c1/edge", "c1/b1")})
    world.post("c1", "root", told)
    world.rest()
    assert root.survey()["broken"] == 1
    world.kill("c1")
    world.rest()
    assert root.survey()["broken"] == 0
    assert world.clouds["c2"].granted[contract].generation == 0


def test_what_is_still_broken_when_a_child_joins_again_stays_so() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    root = world.brokers["root"].machine
    cloud = world.clouds["c1"]
    cloud.closed_ways.update({("c1/edge", "c1/b0"), ("c1/edge", "c1/b1")})
    for _ in range(2):
        told = SegmentBroken(
            term=cloud.term, contract=contract, generation=0, reason="gone", broken=()
        )
        world.post("c1", "root", told)
        world.rest()
        assert root.survey()["broken"] == 1
        world.kill("c1")
        world.settle()


def test_the_parent_hears_that_a_segment_works_again_whose_broker_was_away() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c2/pmu/v")
    world.settle()
    generation = world.clouds["c4"].granted[contract].generation
    told = SegmentBroken(term=1, contract=contract, generation=generation, reason="gone", broken=())
    world.clouds["c4"].capacity = 0
    world.post("c4", "mid", told)
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 1
    world.kill("c4")
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0


class Unconfirming(CloudStandIn):
    """Cloud whose routers never confirm a new plan."""

    def _hear_of_segment(self, message: Reserve | Commit | Release) -> None:
        if not isinstance(message, Commit) or not message.generation:
            super()._hear_of_segment(message)


def broken_again() -> tuple[TreeWorld, str]:
    """Generation 1 is broken too, and generation 0 still stands beside it."""
    clouds = [Unconfirming("c1", "root"), CloudStandIn("c2", "root")]
    channels = [*both_ways("c1/b0", "c2/b0"), *both_ways("c1/b1", "c2/b1")]
    world = TreeWorld({"root": ("", ("c1", "c2"), channels)}, clouds).start()
    world.clouds["c1"].variables[VOLTAGE] = variable(VOLTAGE, 1)
    contract = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    tell(world, "c1", SegmentBroken(term=1, contract=contract, generation=0, reason="first"))
    world.advance(NS_PER_S)
    world.clouds["c1"].capacity = 0
    tell(world, "c1", SegmentBroken(term=1, contract=contract, generation=1, reason="second"))
    root = world.brokers["root"].machine
    assert [found.generation for found in root.state.holdings.of(contract)] == [0, 1]
    assert root.survey()["broken"] == 1
    return world, contract


def tell(world: TreeWorld, sender: str, word: Message) -> None:
    world.post(sender, world.parents[sender], word)
    world.settle()


def test_an_older_generation_that_works_again_does_not_hide_that_the_present_one_is_broken() -> (
    None
):
    world, contract = broken_again()
    root = world.brokers["root"].machine
    tell(world, "c1", SegmentRestored(term=1, contract=contract, generation=0))
    assert root.survey()["broken"] == 1
    tell(world, "c1", SegmentRestored(term=1, contract=contract, generation=1))
    assert root.survey()["broken"] == 0


def test_a_cloud_that_is_only_crossed_does_not_end_the_contract_of_others() -> None:
    world = row_of_clouds(3)
    contract = world.subscribe("c3/d", VOLTAGE)
    world.rest()
    over = SegmentBroken(term=1, contract=contract, generation=0, reason="over", is_over=True)
    tell(world, "c2", over)
    world.rest()
    assert contract not in world.clouds["c3"].ended
    assert world.clouds["c3"].granted[contract].generation == 1, "it is led anew"
    tell(world, "c1", structs.replace(over, generation=1))
    world.rest()
    assert contract in world.clouds["c3"].ended
    assert residue(world) == []
