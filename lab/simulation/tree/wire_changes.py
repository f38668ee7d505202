"""The channels of a tree while operators change them: what brokers own now, and who commands."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lab.simulation.operator_node import OperatorNode

if TYPE_CHECKING:
    from gridstat.model.cloud import EventChannel
    from lab.simulation.tree.grid import TreeGrid
    from lab.simulation.world import World

ENGINEERS_FROM: Final = 30_000
"""First node number of these operators; no other node has these numbers."""


class TreeWiring:
    """Channels of each broker by the plan of the tree, which follows the changes."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._operators: dict[str, OperatorNode] = {}

    @property
    def world(self) -> World:
        return self._grid.world

    def owners_of_channels(self) -> list[str]:
        """Return the brokers with channels; those between clouds count as often as all others."""
        clouds = list(self._grid.clouds)
        brokers = self._grid.swarm.plan.brokers
        above = [name for name, broker in brokers.items() if broker.channels]
        return clouds + above * max(1, len(clouds) // max(1, len(above)))

    def channels_of(self, owner: str) -> tuple[EventChannel, ...]:
        plan = self._grid.swarm.plan
        return plan.clouds[owner].channels if owner in plan.clouds else plan.brokers[owner].channels

    def numbers_of(self, owner: str) -> set[int]:
        """Return the numbers of all channels that a broker has now; removed ones keep a wire."""
        return {int(channel.channel_id) for channel in self.channels_of(owner)}

    def channel_operator(self, owner: str) -> OperatorNode:
        operator = self._operators.get(owner)
        if operator is None:
            number = ENGINEERS_FROM + len(self._operators)
            operator = OperatorNode(self._grid.network, number, owner, "carol")
            self._operators[owner] = operator
            self._grid.network.nodes[operator.peer] = operator
            operator.start()
        return operator

    def channel_added(self, owner: str, channel: EventChannel) -> None:
        wires = self._grid.wires.owned[owner]
        if channel.channel_id not in wires.ends:
            wires.add([channel])
        wires.look_later(int(channel.channel_id))
        if channel not in self.channels_of(owner):
            self._set(owner, (*self.channels_of(owner), channel))

    def channel_removed(self, owner: str, number: int) -> None:
        kept = [each for each in self.channels_of(owner) if int(each.channel_id) != number]
        self._set(owner, tuple(kept))

    def journal_lost(self, owner: str) -> None:
        """Forget what was added: only the channels of the broker's file are left."""
        files = self._grid.files
        cloud = files.clouds.get(owner)
        self._set(owner, files.brokers[owner].channels if cloud is None else cloud.channels)

    def unrest(self) -> str | None:
        for owner, operator in self._operators.items():
            if not operator.is_idle:
                return f"the operator of the channels of {owner} waits for an answer"
        return None

    def _set(self, owner: str, channels: tuple[EventChannel, ...]) -> None:
        plan = self._grid.swarm.plan
        brokers, clouds = dict(plan.brokers), dict(plan.clouds)
        if owner in clouds:
            clouds[owner] = replace(clouds[owner], channels=channels)
        else:
            brokers[owner] = replace(brokers[owner], channels=channels)
        plan = replace(plan, brokers=brokers, clouds=clouds)
        self._grid.swarm = replace(self._grid.swarm, plan=plan)
