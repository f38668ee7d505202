"""The channels of a single cloud while an operator changes them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.simulation.topology import CLOUD

if TYPE_CHECKING:
    from gridstat.model.cloud import EventChannel
    from lab.simulation.cloud import Cloud
    from lab.simulation.operator_node import OperatorNode
    from lab.simulation.world import World


class CloudWiring:
    """Channels of the broker's file, beside which others are added."""

    def __init__(self, cloud: Cloud) -> None:
        self._cloud = cloud

    @property
    def world(self) -> World:
        return self._cloud.world

    def owners_of_channels(self) -> list[str]:
        return [CLOUD]

    def channels_of(self, owner: str) -> tuple[EventChannel, ...]:
        del owner
        return self._cloud.swarm.topology.channels

    def channel_operator(self, owner: str) -> OperatorNode:
        del owner
        return self._cloud.operator

    def channel_added(self, owner: str, channel: EventChannel) -> None:
        del owner
        if channel.channel_id not in self._cloud.channels.ends:
            self._cloud.channels.add([channel])
        self._cloud.channels.look_later(int(channel.channel_id))

    def channel_removed(self, owner: str, number: int) -> None:
        """Leave the wire where it is: nobody opens the channel any more."""
