"""Lost journals, slowness in trees, named channels: all of them are drawn, and happen."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, cast

import pytest

from gridstat.model.cloud import EventChannel
from gridstat.model.errors import NoSuchChannel
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.endpoint_messages import RefusedOutcome
from gridstat.net.command.operator_messages import OperatorAnswer
from lab.simulation.channel_changes import (
    CHANGED_REST,
    CHANGED_SEEDS,
    ChannelChanges,
    draw_changes,
)
from lab.simulation.lost_journal import LOST_REST, LOST_SEEDS
from lab.simulation.run import Run
from lab.simulation.swarm import FaultKind, draw
from lab.simulation.tree import run as tree_run
from lab.simulation.tree import swarm as tree_swarm
from lab.simulation.tree.slow_faults import SLOW_REST, SLOW_SEEDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.operator_node import OperatorNode
    from lab.simulation.world import World

CLOUD_SEED = 5
TREE_SEED = 11


def test_one_seed_in_six_with_faults_loses_its_journal() -> None:
    for swarm in (draw(seed) for seed in range(60)):
        kinds = {kind for _, kind in swarm.faults}
        is_one = swarm.seed % LOST_SEEDS == LOST_REST and not swarm.is_quiet
        assert (FaultKind.JOURNAL_LOSS in kinds) is is_one


def test_a_cloud_that_loses_its_journal_begins_anew_and_all_holds() -> None:
    run = Run(draw(CLOUD_SEED))
    assert run.verdict().is_good
    assert run.cloud.journal.lost
    assert run.cloud.broker is not None
    assert run.cloud.broker.registry.is_lost(1)


def test_a_broker_of_a_tree_that_loses_its_journal_begins_anew_and_all_holds() -> None:
    run = tree_run.Run(tree_swarm.draw(TREE_SEED))
    assert run.verdict().is_good
    assert any(node.journal.lost for node in run.grid.brokers.values())


def test_some_trees_have_slow_peers_congested_channels_and_clocks_that_differ() -> None:
    swarms = [tree_swarm.draw(seed) for seed in range(60)]
    kinds = {kind for swarm in swarms for _, kind in swarm.faults}
    assert {tree_swarm.FaultKind.SLOW_PEER, tree_swarm.FaultKind.BACK_PRESSURE} <= kinds
    run = tree_run.Run(next(one for one in swarms if one.seed % SLOW_SEEDS == SLOW_REST))
    assert len({node.clock_offset_ns for node in run.grid.brokers.values()}) > 1


def test_channels_are_added_beside_others_inside_clouds_and_between_them() -> None:
    added = set()
    for seed in range(CHANGED_REST, 60, CHANGED_SEEDS):
        swarm = tree_swarm.draw(seed)
        run = tree_run.Run(swarm)
        run.verdict()
        plan = run.grid.swarm.plan
        added |= {
            name
            for some, files in (
                (plan.brokers, swarm.plan.brokers),
                (plan.clouds, swarm.plan.clouds),
            )
            for name, owner in some.items()
            if owner.channels != files[name].channels
        }
    assert any(name.startswith("c") for name in added)
    assert not all(name.startswith("c") for name in added)


def test_seeds_of_other_rests_change_no_channel() -> None:
    assert draw_changes(Random(1), CHANGED_REST + 1, 1_000) == ()


class StandInOperator:
    """Operator whose commands wait until the test answers them."""

    is_idle = True

    def __init__(self) -> None:
        self.was_repeated = False
        self.is_at_present_broker = True
        self.answer: Callable[[OperatorAnswer], None] | None = None

    def next_id(self) -> int:
        return 1

    def ask(self, _: object, then: Callable[[OperatorAnswer], None]) -> None:
        self.answer = then


class StandInWorld:
    """World in which every chance comes true, and every pick is the first."""

    def chance(self, _: float) -> bool:
        return True

    def between(self, low: int, _: int) -> int:
        return low


class StandInWires:
    """Wires of one broker that note which channels are gone."""

    def __init__(self) -> None:
        self.world = cast("World", StandInWorld())
        self.operator = StandInOperator()
        self.removed: list[int] = []

    def owners_of_channels(self) -> list[str]:
        return ["c1"]

    def channels_of(self, _: str) -> tuple[EventChannel, ...]:
        return (EventChannel(ChannelId(1), "c1/r0", "c1/r1", 0, 100),)

    def channel_operator(self, _: str) -> OperatorNode:
        return cast("OperatorNode", self.operator)

    def channel_added(self, owner: str, channel: EventChannel) -> None: ...

    def channel_removed(self, _: str, number: int) -> None:
        self.removed.append(number)


@pytest.mark.parametrize(
    ("was_repeated", "is_at_present_broker", "removed"),
    [(True, True, [7]), (False, True, []), (True, False, [])],
)
def test_a_repeated_removal_that_finds_no_channel_was_done_before(
    *, was_repeated: bool, is_at_present_broker: bool, removed: list[int]
) -> None:
    """A broker that was replaced may not know the channel yet, and proves nothing."""
    wires = StandInWires()
    changes = ChannelChanges(wires)
    changes.change()
    assert wires.operator.answer is not None
    wires.operator.answer(OperatorAnswer(1, {"channel_id": 7}))
    wires.operator.was_repeated = was_repeated
    wires.operator.is_at_present_broker = is_at_present_broker
    changes.change()

    refused = RefusedOutcome(code=NoSuchChannel.code, reason="there is no channel")
    wires.operator.answer(OperatorAnswer(1, refused=refused))

    assert wires.removed == removed
