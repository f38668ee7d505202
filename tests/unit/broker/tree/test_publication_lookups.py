"""Answers about publishers: of the question that was asked, in this life, and of no other."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_settings import TreeSettings
from gridstat.model.errors import DeadlinePassed, NoSuchVariable
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import LookedUp, Lookup
from tests.unit.broker.tree.tree_world import variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, inconsistencies, residue, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

OTHER = "c1/pmu/other"


def questions(world: TreeWorld, child: str) -> list[Lookup]:
    return [
        message
        for _, receiver, message in world.sent
        if receiver == child and isinstance(message, Lookup)
    ]


def test_an_answer_to_a_request_before_a_restart_is_not_taken_for_another() -> None:
    world = deep_tree()
    cloud = world.clouds["c1"]
    cloud.variables[OTHER] = variable(OTHER, 99)
    cloud.is_silent = True
    contract = world.subscribe("c4/d", VOLTAGE, 1)
    world.settle()
    world.end(contract)
    world.settle()
    world.kill("root")
    world.settle()
    world.subscribe("c4/d", OTHER, 2)
    world.settle()
    first, *_ = questions(world, "c1")
    assert first.name == VOLTAGE
    found = cloud.variables[VOLTAGE]
    world.post("c1", "west", LookedUp(term=cloud.term, lookup=first.lookup, variable=found))
    world.settle()
    cloud.is_silent = False
    for asked in questions(world, "c1")[1:]:
        cloud._look_up(asked)
    world.say("c1")
    world.settle()
    assert world.clouds["c4"].granted["c4#2"].variable.name == OTHER


def test_no_two_processes_of_a_broker_give_a_request_the_same_number() -> None:
    world = two_clouds()
    for life in range(3):
        world.subscribe("c2/d", VOLTAGE, life + 1)
        world.settle()
        world.kill("root")
        world.settle()
    numbers = [asked.lookup for asked in questions(world, "c1")]
    assert len(set(numbers)) == len(numbers) == 3


def test_another_variable_than_the_one_asked_for_is_no_answer() -> None:
    world = two_clouds()
    cloud = world.clouds["c1"]
    cloud.is_silent = True
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    (asked,) = questions(world, "c1")
    wrong = LookedUp(term=cloud.term, lookup=asked.lookup, variable=variable(OTHER, 99))
    world.post("c1", "root", wrong)
    world.settle()
    assert contract not in world.clouds["c2"].granted
    cloud.is_silent = False
    world.post(
        "c1",
        "root",
        LookedUp(term=cloud.term, lookup=asked.lookup, variable=cloud.variables[VOLTAGE]),
    )
    world.settle()
    assert world.clouds["c2"].granted[contract].variable.name == VOLTAGE
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_broker_that_begins_at_the_highest_term_asks_like_any_other() -> None:
    world = two_clouds(TreeSettings(name="", term_min=2**53))
    contract = world.subscribe("c2/d", VOLTAGE)
    world.settle()
    assert contract in world.clouds["c2"].granted


# Clouds that a broker does not know of.


def without_journal(world: TreeWorld, name: str) -> None:
    """A new life that knows of nothing; the clouds below it have not joined again yet."""
    broker = world.brokers[name]
    broker.settings = replace(broker.settings, term_min=5)
    broker.written.clear()
    world.cut |= set(broker.children)
    world.kill(name)
    world.settle()
    world.advance(3 * NS_PER_S)


def test_a_broker_in_the_middle_that_loses_its_journal_ends_no_contract() -> None:
    world = deep_tree()
    contract = world.subscribe("c1/d", "c3/pmu/v")
    world.rest()
    without_journal(world, "mid")
    assert world.brokers["root"].machine.survey()["broken"] == 1
    world.cut.clear()
    world.rest()
    assert contract not in world.clouds["c1"].ended
    assert world.clouds["c1"].granted[contract].generation > 0
    assert world.brokers["root"].machine.survey()["broken"] == 0
    assert inconsistencies(world) == []
    world.end(contract)
    world.rest()
    assert residue(world) == []


def test_a_change_that_is_asked_while_the_publishers_cloud_is_unknown_ends_no_contract() -> None:
    world = deep_tree()
    contract = world.subscribe("c1/d", "c3/pmu/v")
    world.rest()
    without_journal(world, "mid")
    world.subscribe("c1/d", "c3/pmu/v", generation=1, redundancy=2)
    world.settle()
    assert world.clouds["c1"].refused[contract].refused.code == DeadlinePassed.code
    assert contract not in world.clouds["c1"].ended
    world.cut.clear()
    world.rest()
    world.subscribe("c1/d", "c3/pmu/v", generation=2, redundancy=2)
    world.rest()
    assert len(world.clouds["c1"].granted[contract].paths) == 2
    assert inconsistencies(world) == []


def test_who_asks_anew_while_the_publishers_cloud_is_unknown_keeps_the_contract() -> None:
    world = deep_tree()
    contract = world.subscribe("c1/d", "c3/pmu/v")
    world.rest()
    without_journal(world, "mid")
    world.disconnect("c1")
    world.clouds["c1"].granted.clear()
    world.subscribe("c1/d", "c3/pmu/v")
    world.settle()
    assert contract not in world.clouds["c1"].refused
    assert contract not in world.clouds["c1"].ended


def test_a_subscription_to_a_cloud_that_never_was_is_refused_and_leaves_nothing() -> None:
    world = deep_tree()
    contract = world.subscribe("c1/d", "c9/pmu/v")
    world.settle()
    refused = world.clouds["c1"].refused[contract].refused
    assert refused.code == NoSuchVariable.code
    assert "no cloud c9 is known from here to the root" in refused.reason
    world.rest()
    assert residue(world) == []


def test_a_contract_whose_cloud_says_that_the_variable_is_gone_ends() -> None:
    world = deep_tree()
    contract = world.subscribe("c1/d", "c3/pmu/v")
    world.rest()
    without_journal(world, "mid")
    del world.clouds["c3"].variables["c3/pmu/v"]
    world.cut.clear()
    world.rest()
    assert contract in world.clouds["c1"].ended
    assert residue(world) == []
