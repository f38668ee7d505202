"""A cloud that operators move below another broker, once nobody uses it.

What contracts need is not removed, so a cloud is moved after its end-points have left: its channels
to other clouds are removed, the broker above forgets it, its own broker starts with another parent,
and the channels are added again by the brokers that own them now. Meanwhile one of these brokers
may die. Then all end-points come back, and what holds elsewhere must hold in the new tree.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from msgspec import structs

from gridstat.model.errors import NoSuchChannel, UnknownName
from gridstat.model.identifiers import ChannelId
from gridstat.net.command.operator_messages import (
    AddChild,
    AddNamedChannel,
    RemoveChild,
    RemoveNamedChannel,
)
from lab.simulation.world import NS_PER_MS, NS_PER_S, PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.operator_messages import (
        OperatorAnswer,
        OperatorCommand,
        TreeCommand,
    )
    from lab.simulation.tree.grid import TreeGrid
    from lab.tree_plan import TreePlan

RULE: Final = "a cloud that nobody uses can be moved"
MOVED_SEEDS: Final = 11
MOVED_REST: Final = 4
"""Remainder of the seeds, one in eleven, in which a cloud is moved, if there is another place.

Eleven has no factor in common with what else is drawn by remainders, so every kind of tree is met.
"""
DONE_BEFORE: Final = frozenset({NoSuchChannel.code, UnknownName.code})
"""Refusals of a repeated removal whose first answer was lost."""
CRASH_SHARE: Final = 0.4
DOWN_MS: Final = (20, 3_000)
WITHIN_NS: Final = 60 * NS_PER_S
LOOK_NS: Final = 250 * NS_PER_MS


class MovedChild:
    """Move of one cloud of a tree in which nothing is under way."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._world = grid.world
        self._refused = ""
        self.moved = ""
        """Cloud that was moved, if any."""

    def move(self) -> bool:
        """Move some cloud to another parent; False if the tree has no other place for any."""
        plan = self._grid.swarm.plan
        places = _places(plan)
        if self._grid.swarm.seed % MOVED_SEEDS != MOVED_REST or not places:
            return False
        child, parent = places[self._world.between(0, len(places) - 1)]
        former, self.moved = plan.brokers[child].parent, child
        if self._world.is_traced:
            self._world.tell(f"broker/{child}", f"MOVES from {former} to {parent}")
        removed = self._remove_channels(child)
        self._crash_some(child, former, parent)
        self._ask(former, RemoveChild(0, child))
        self._wait()
        self._ask(parent, AddChild(0, child))
        self._start_below(child, parent)
        self._crash_some(child, former, parent)
        self._wait(until=partial(self._is_joined, child))
        for channel in removed:
            self._add_channel(channel)
        self._crash_some(child, former, parent)
        self._wait()
        return True

    # Steps.

    def _remove_channels(self, child: str) -> list[EventChannel]:
        """Remove all channels between this cloud and others; return them."""
        found = [
            (owner, channel)
            for owner, broker in self._grid.swarm.plan.brokers.items()
            for channel in broker.channels
            if child in _clouds_of(channel)
        ]
        for owner, channel in found:
            self._ask(
                owner,
                RemoveNamedChannel(0, channel.from_router, channel.to_router, channel.name),
                partial(self._is_removed, owner, int(channel.channel_id)),
            )
        self._wait()
        return [channel for _, channel in found]

    def _is_removed(self, owner: str, number: int, _: OperatorAnswer) -> None:
        self._grid.wiring.channel_removed(owner, number)

    def _add_channel(self, channel: EventChannel) -> None:
        """Add a channel at the lowest broker above both of its ends, as the tree is now."""
        plan = self._grid.swarm.plan
        owner = plan.common(*_clouds_of(channel))
        depth = plan.brokers[owner].depth
        anew = replace(channel, channel_id=ChannelId(0), level=depth)
        self._ask(owner, AddNamedChannel(0, anew), partial(self._is_added, owner, anew))

    def _is_added(self, owner: str, channel: EventChannel, answer: OperatorAnswer) -> None:
        number = ChannelId(answer.facts["channel_id"])
        self._grid.wiring.channel_added(owner, replace(channel, channel_id=number))

    def _start_below(self, child: str, parent: str) -> None:
        """End the cloud's broker, change the files of all three, and start it again."""
        grid = self._grid
        node = grid.brokers[child]
        if node.is_up:
            node.crash(is_sudden=False)
        grid.swarm = replace(grid.swarm, plan=_moved(grid.swarm.plan, child, parent))
        grid.files = _without_channels(_moved(grid.files, child, parent), child)
        grid.wires.plan = grid.swarm.plan
        for name, broker in grid.swarm.plan.brokers.items():
            grid.brokers[name].plan = broker
        node.start()

    def _crash_some(self, *names: str) -> None:
        """Let one of these brokers die, in some seeds, and start it again."""
        node = self._grid.brokers[names[self._world.between(0, len(names) - 1)]]
        if node.is_up and self._world.chance(CRASH_SHARE):
            node.crash(is_sudden=self._world.chance(0.5))
            self._world.after(self._world.between(*DOWN_MS) * NS_PER_MS, self._restart, node.name)

    def _restart(self, name: str) -> None:
        node = self._grid.brokers[name]
        if not node.is_up:
            node.start()

    # Commands.

    def _ask(
        self,
        broker: str,
        command: OperatorCommand | TreeCommand,
        then: Callable[[OperatorAnswer], None] | None = None,
    ) -> None:
        operator = self._grid.wiring.channel_operator(broker)

        def answered(answer: OperatorAnswer) -> None:
            refused = answer.refused
            is_done_before = operator.was_repeated and operator.is_at_present_broker
            if refused is not None and not (is_done_before and refused.code in DONE_BEFORE):
                self._refused = refused.reason
            elif then is not None:
                then(answer)

        operator.ask(structs.replace(command, request_id=operator.next_id()), answered)

    def _wait(self, until: Callable[[], bool] = lambda: True) -> None:
        """Run until all commands are answered and all brokers are up, and then `until` holds."""
        end_ns = self._world.now_ns + WITHIN_NS
        while True:
            self._world.run_until(self._world.now_ns + LOOK_NS)
            if self._refused:
                raise PropertyBroken(RULE, self._refused)
            is_up = all(node.is_up for node in self._grid.brokers.values())
            if is_up and self._grid.wiring.unrest() is None and until():
                return
            if self._world.now_ns >= end_ns:
                raise PropertyBroken(RULE, "the operators wait in vain")

    def _is_joined(self, child: str) -> bool:
        """Return whether all brokers above know the cloud below them."""
        brokers = self._grid.qos_brokers()
        chain = (*self._grid.swarm.plan.brokers[child].above, child)
        return all(
            name in brokers and brokers[name].state.families.child_of(child) == below
            for name, below in pairwise(chain)
        )


def _clouds_of(channel: EventChannel) -> tuple[str, str]:
    return cloud_of(channel.from_router), cloud_of(channel.to_router)


def _places(plan: TreePlan) -> list[tuple[str, str]]:
    """Return the clouds that can be moved, each with every other broker that may be its parent.

    A broker keeps one child at least, and its clouds stay joined among themselves: no path leaves a
    broker's clouds and comes back.
    """
    return [
        (cloud, name)
        for cloud in plan.clouds
        if plan.brokers[cloud].parent and len(plan.brokers[plan.brokers[cloud].parent].children) > 1
        for name in plan.brokers
        if name not in plan.clouds and name != plan.brokers[cloud].parent
        if _are_joined(_moved(plan, cloud, name))
    ]


def _are_joined(plan: TreePlan) -> bool:
    """Return whether channels join the clouds below each broker, without any other cloud."""
    links = [_clouds_of(each) for broker in plan.brokers.values() for each in broker.channels]
    for name in plan.brokers:
        below = {cloud for cloud in plan.clouds if name in plan.scope(cloud)}
        found, reached = set[str](), {min(below)}
        while reached != found:
            found = reached
            reached = found | {other for one, other in links if one in found and other in below}
        if found != below:
            return False
    return True


def _moved(plan: TreePlan, child: str, parent: str) -> TreePlan:
    """Return the plan with a cloud below another broker; its channels are left as they are."""
    former = plan.brokers[child].parent
    brokers = {name: broker for name, broker in plan.brokers.items() if name != child}
    left = tuple(name for name in brokers[former].children if name != child)
    brokers[former] = replace(brokers[former], children=left)
    joined = (*brokers[parent].children, child)
    brokers[parent] = replace(brokers[parent], children=joined)
    above = (*brokers[parent].above, parent)
    brokers[child] = replace(plan.brokers[child], parent=parent, above=above)
    return replace(plan, brokers=brokers)


def _without_channels(plan: TreePlan, child: str) -> TreePlan:
    """Leave out the channels at this cloud: operators add them, and journals keep them."""
    brokers = {
        name: replace(
            broker,
            channels=tuple(each for each in broker.channels if child not in _clouds_of(each)),
        )
        for name, broker in plan.brokers.items()
    }
    return replace(plan, brokers=brokers)
