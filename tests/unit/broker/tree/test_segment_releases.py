"""Repeated Release: while a grandchild is away, or to a child that does not receive it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.broker.tree.segment_releases import RELEASES_AT_ONCE_MAX, RETRIES_APART_MAX
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.segment_messages import Release, Released
from gridstat.net.command.session_messages import MANY_MAX
from tests.unit.broker.tree.scripted_root import ask, below_scripted_root, hold_up, let_go
from tests.unit.broker.tree.test_child_quotas import held
from tests.unit.broker.tree.worlds import VOLTAGE, residue, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld


@pytest.mark.parametrize("is_reserved", [True, False])
def test_a_release_that_is_said_often_is_passed_on_and_answered_once(is_reserved: bool) -> None:
    world, _ = below_scripted_root()
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
    world, _ = below_scripted_root()
    for _ in range(2):
        world.post("root", "west", Release(term=1, contract="c9#1", generation=0))
        world.settle()
    assert sum(isinstance(word, Released) and to == "root" for _, to, word in world.sent) == 2


def releases(world: TreeWorld) -> int:
    return sum(isinstance(word, Release) and to == "c1" for _, to, word in world.sent)


def test_a_release_is_said_ever_more_rarely_within_a_session_and_at_once_in_the_next() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    world.rest()
    world.clouds["c1"].is_silent = True
    world.end(contract)
    world.settle()
    said = []
    for _ in range(8):
        for _ in range(RETRIES_APART_MAX):
            world.advance(NS_PER_S)
            world.settle()
        said.append(releases(world))
    assert said[0] < 10
    assert said[-1] - said[-2] == 1
    world.kill("c1")
    world.settle()
    assert releases(world) == said[-1] + 1
    let_go(world, "c1")
    world.rest()
    assert residue(world) == []


def test_a_child_that_gives_nothing_back_is_not_told_all_of_it_in_one_turn() -> None:
    world = two_clouds()
    world.clouds["c1"].is_silent = True
    world.disconnect("c1")
    world.settle()
    for first in range(0, 3 * RELEASES_AT_ONCE_MAX, MANY_MAX):
        world.post("c1", "root", held(first, MANY_MAX))
    world.settle()
    world.advance(NS_PER_S - 1)
    before = releases(world)
    world.advance(1)
    assert releases(world) - before == RELEASES_AT_ONCE_MAX
    world.advance(NS_PER_S - 1)
    assert releases(world) - before == 3 * RELEASES_AT_ONCE_MAX
    world.disconnect("c1")
    world.settle()
    assert releases(world) - before == 4 * RELEASES_AT_ONCE_MAX
