"""A Release that is said again and again while a grandchild is away."""

from __future__ import annotations

import pytest

from gridstat.net.command.stretch_messages import Release, Released
from tests.unit.broker.tree.seat import ask, hold_up, let_go, under_a_seat
from tests.unit.broker.tree.worlds import residue


@pytest.mark.parametrize("is_reserved", [True, False])
def test_a_release_that_is_said_often_is_passed_on_and_answered_once(is_reserved: bool) -> None:
    world, _ = under_a_seat()
    ask(world, "c9#1")
    if is_reserved:
        world.settle()
        world.clouds["c1"].is_silent = True
    else:
        hold_up(world, "c1")
    for _ in range(20):
        world.post("root", "west", Release(term=1, contract="c9#1", generation=0))
        world.settle()
    assert sum(isinstance(word, Release) and to == "c1" for _, to, word in world.sent) == 1
    let_go(world, "c1")
    world.rest()
    assert sum(isinstance(word, Released) and to == "root" for _, to, word in world.sent) == 1
    assert residue(world) == []


def test_a_release_of_what_is_not_held_is_answered_each_time() -> None:
    world, _ = under_a_seat()
    for _ in range(2):
        world.post("root", "west", Release(term=1, contract="c9#1", generation=0))
        world.settle()
    assert sum(isinstance(word, Released) and to == "root" for _, to, word in world.sent) == 2
