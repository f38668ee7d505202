"""Answers about publishers: of the question that was asked, in this life, and of no other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.settings import TreeSettings
from gridstat.net.command.stretch_messages import LookedUp, Lookup
from tests.unit.broker.tree.tree_world import variable
from tests.unit.broker.tree.worlds import VOLTAGE, deep_tree, residue, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

OTHER = "c1/pmu/other"


def questions(world: TreeWorld, child: str) -> list[Lookup]:
    return [
        message
        for _, receiver, message in world.sent
        if receiver == child and isinstance(message, Lookup)
    ]


def test_an_answer_to_a_question_of_an_earlier_life_is_not_taken_for_another() -> None:
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


def test_no_two_lives_of_a_broker_give_a_question_the_same_number() -> None:
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
