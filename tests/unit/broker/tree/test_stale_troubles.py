"""Troubles that are over before the broker that told of them comes back."""

from __future__ import annotations

from gridstat.net.command.stretch_messages import StretchBroken
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, two_clouds


def test_a_child_that_joins_again_says_anew_what_is_broken_and_the_rest_is_whole() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE, redundancy=2)
    world.settle()
    root = world.brokers["root"].machine
    told = StretchBroken(term=1, contract=contract, generation=0, reason="gone", broken=())
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
        told = StretchBroken(
            term=cloud.term, contract=contract, generation=0, reason="gone", broken=()
        )
        world.post("c1", "root", told)
        world.rest()
        assert root.survey()["broken"] == 1
        world.kill("c1")
        world.settle()


def test_the_parent_hears_that_a_stretch_works_again_whose_broker_was_away() -> None:
    world = deep_tree()
    contract = world.subscribe("c4/d", "c2/pmu/v")
    world.settle()
    generation = world.clouds["c4"].granted[contract].generation
    told = StretchBroken(term=1, contract=contract, generation=generation, reason="gone", broken=())
    world.clouds["c4"].capacity = 0
    world.post("c4", "mid", told)
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 1
    world.kill("c4")
    world.rest()
    assert world.brokers["root"].machine.survey()["broken"] == 0
