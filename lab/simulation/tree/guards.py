"""Operators of the clouds of a simulated tree who change access rules, one for each cloud."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lab.simulation.operator_node import OperatorNode

if TYPE_CHECKING:
    from lab.simulation.tree.grid import TreeGrid

GUARDS_FROM: Final = 20_000
"""First node number of these operators; no other node has these numbers."""


class Guards:
    """Operators by cloud; they connect when they are started."""

    def __init__(self, grid: TreeGrid) -> None:
        self._grid = grid
        self._nodes: dict[str, OperatorNode] = {}

    def start(self) -> None:
        network = self._grid.network
        for number, cloud in enumerate(self._grid.clouds, start=GUARDS_FROM):
            node = self._nodes[cloud] = OperatorNode(network, number, cloud, "bob")
            network.nodes[node.peer] = node
            node.start()

    def operator_of(self, cloud: str) -> OperatorNode | None:
        """Return the operator of a cloud."""
        return self._nodes.get(cloud)

    def unrest(self) -> str | None:
        """Return which operator still waits for an answer, if any does."""
        for cloud, node in self._nodes.items():
            if not node.is_idle:
                return f"the operator of the rules of {cloud} waits for an answer"
        return None
