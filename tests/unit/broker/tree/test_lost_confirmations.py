"""Confirmations of a child that were lost with its session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.net.command.segment_messages import SegmentUp
from tests.unit.broker.tree.worlds import VOLTAGE, two_clouds

if TYPE_CHECKING:
    from tests.unit.broker.tree.tree_world import TreeWorld


def step_until_up(world: TreeWorld, child: str) -> None:
    """Run until a child has sent its confirmation, and its parent has not received it yet."""
    for _ in range(10_000):
        world.step()
        if any(isinstance(word, SegmentUp) and one == child for one, _, word in world.queue):
            return
    raise AssertionError("no SegmentUp")


def test_a_child_that_joins_again_confirms_at_once_what_it_has_committed() -> None:
    world = two_clouds()
    contract = world.subscribe("c2/d", VOLTAGE)
    step_until_up(world, "c1")
    world.disconnect("c1")
    world.settle()  # No time passes: nothing is said again but because c1 has joined.
    assert world.clouds["c1"].segments[contract, 0].is_committed
    assert world.clouds["c2"].granted[contract].degraded == ()
