"""A broker that is killed at any instruction: consistent afterwards, and nothing is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.net.command.messages import Message  # noqa: TC001
from tests.unit.broker.tree.worlds import deep_tree, inconsistencies, residue

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld

BROKERS = ("root", "west", "east", "mid")
STEPS_MAX = 60


def _subscribe(world: TreeWorld) -> None:
    world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
    world.rest()


def _change(world: TreeWorld) -> None:
    world.subscribe("c4/d", "c1/pmu/v", generation=1)
    world.rest()


def _end(world: TreeWorld) -> None:
    world.end("c4#1")
    world.rest()


def _kill_points(broker: str, before: list[str]) -> int:
    """Return the number of instructions of the broker for the step, each a point to kill it at."""
    world = deep_tree()
    for step in before[:-1]:
        STEPS[step](world)
    world.kill_after[broker] = 10_000
    STEPS[before[-1]](world)
    return 10_000 - world.kill_after[broker]


STEPS = {"subscribe": _subscribe, "change": _change, "end": _end}
WALKS = {
    "subscribe": ["subscribe"],
    "change": ["subscribe", "change"],
    "end": ["subscribe", "end"],
}


@pytest.mark.parametrize("broker", BROKERS)
@pytest.mark.parametrize("walk", WALKS)
@pytest.mark.parametrize("fate", ["heard", "lost"])
def test_a_broker_killed_at_any_point_ends_in_a_state_that_all_agree_on(
    broker: str, walk: str, fate: str
) -> None:
    """Kill a broker at every point; its last messages before the kill are received, or lost."""
    steps = WALKS[walk]
    points = _kill_points(broker, steps)
    assert 4 <= points <= STEPS_MAX
    for point in range(points):
        world = deep_tree()
        for step in steps[:-1]:
            STEPS[step](world)
        world.are_last_words_heard = fate == "heard"
        world.kill_after[broker] = point
        STEPS[steps[-1]](world)
        assert broker not in world.kill_after, "it was killed"
        world.rest()
        where = f"{broker} killed at point {point} of {walk}, last words {fate}"
        assert inconsistencies(world) == [], where
        if walk == "end":
            assert "c4#1" in world.clouds["c4"].ended, where
        else:
            granted = world.clouds["c4"].granted["c4#1"]
            assert granted.degraded == (), where
            assert granted.generation == (1 if walk == "change" else 0), where
            assert not world.clouds["c4"].asked, where
            assert set(world.clouds["c1"].segments) == {("c4#1", granted.generation)}, where
            world.end("c4#1")
            world.rest()
        assert residue(world) == [], where


@pytest.mark.parametrize("broker", BROKERS)
def test_what_was_reserved_for_nobody_goes_though_it_is_never_asked_again(broker: str) -> None:
    for point in range(_kill_points(broker, ["subscribe"])):
        world = deep_tree()
        world.kill_after[broker] = point
        world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
        while broker in world.kill_after:
            assert world.step()
        world.end("c4#1")
        world.rest()
        assert residue(world) == [], f"{broker} killed at point {point}"


@pytest.mark.parametrize("cloud", ["c1", "c4"])
@pytest.mark.parametrize("walk", WALKS)
def test_a_cloud_whose_session_breaks_at_any_message_ends_so_too(cloud: str, walk: str) -> None:
    steps = WALKS[walk]
    for point in range(12):
        world = deep_tree()
        for step in steps[:-1]:
            STEPS[step](world)
        _break_session_at(world, cloud, point)
        STEPS[steps[-1]](world)
        world.rest()
        where = f"session of {cloud} broken at message {point} of {walk}"
        assert inconsistencies(world) == [], where
        if walk != "end":
            assert world.clouds["c4"].granted["c4#1"].degraded == (), where
            world.end("c4#1")
            world.rest()
        assert residue(world) == [], where


def _break_session_at(world: TreeWorld, cloud: str, point: int) -> None:
    count = 0
    post = world.post

    def lossy(sender: str, receiver: str, message: Message) -> None:
        nonlocal count
        if cloud in {sender, receiver}:
            count += 1
            if count == point + 1:
                world.kill(cloud)
                return
        post(sender, receiver, message)

    world.post = lossy  # type: ignore[method-assign]


@pytest.mark.parametrize("broker", BROKERS)
def test_a_full_disk_at_any_write_leaves_a_state_that_all_agree_on(broker: str) -> None:
    for point in range(8):
        world = deep_tree()
        world.fail_writes[broker] = {point}
        world.subscribe("c4/d", "c1/pmu/v", redundancy=2)
        world.rest()
        where = f"write {point} of {broker}"
        assert inconsistencies(world) == [], where
        if "c4#1" in world.clouds["c4"].granted:
            world.end("c4#1")
            world.rest()
        assert residue(world) == [], where
