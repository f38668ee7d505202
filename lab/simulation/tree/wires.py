"""Event channels of a whole tree: a number means a different channel in every owner's scope."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.simulation.channels import Channels
from lab.tree_plan import BORDER_BIT, depth_of

if TYPE_CHECKING:
    from lab.simulation.router_node import RouterNode
    from lab.simulation.world import World
    from lab.tree_plan import TreePlan


class TreeWires:
    """Wires of a tree; `owned` are the channels of each broker, leaf or not, by its name."""

    def __init__(self, world: World, plan: TreePlan) -> None:
        self.plan = plan
        self.routers: dict[str, RouterNode] = {}
        self.owned: dict[str, Channels] = {}
        for name, broker in plan.brokers.items():
            channels = self.owned[name] = Channels(world)
            channels.routers = self.routers
            channels.add(broker.channels)
        for name, cloud in plan.clouds.items():
            self.owned[name].add(cloud.channels)

    def owner_of(self, cloud: str, channel_id: int) -> str:
        """Return the owner of a channel as this cloud numbers it.

        Numbers of a deeper place, from which the cloud was moved, lead to no channel of the root.
        """
        if channel_id >= BORDER_BIT and depth_of(channel_id) >= self.plan.brokers[cloud].depth:
            return self.plan.brokers[cloud].above[0]
        return self.plan.owner_of(cloud, channel_id)

    def receiver(self, cloud: str, channel_id: int) -> str:
        """Return the receiver of a channel as this cloud numbers it; empty for an end-point."""
        channels = self.owned[self.owner_of(cloud, channel_id)]
        return channels.ends[channel_id][1] if channel_id in channels.ends else ""

    def is_cut(self, cloud: str, channel_id: int) -> bool:
        return channel_id in self.owned[self.owner_of(cloud, channel_id)].cut


class CloudWires:
    """Channels that the routers of one cloud see: its own, and those of all brokers above it."""

    def __init__(self, wires: TreeWires, cloud: str) -> None:
        self._wires = wires
        self._cloud = cloud

    def owner(self, channel_id: int) -> str:
        return self._wires.owner_of(self._cloud, channel_id)

    def look_around(self, router: str) -> None:
        for scope in self._wires.plan.scope(self._cloud):
            self._wires.owned[scope].look_around(router)

    def look_later(self, channel_id: int) -> None:
        owner = self._wires.owner_of(self._cloud, channel_id)
        self._wires.owned[owner].look_later(channel_id)
