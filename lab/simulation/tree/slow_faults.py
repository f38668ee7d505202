"""Faults that break nothing in a tree: congested channels, slow peers, clocks that differ."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.router.agent_events import WaterMarkCrossed
from lab.simulation.world import NS_PER_MS
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from random import Random

    from lab.simulation.mending import Mending
    from lab.simulation.node import Node
    from lab.simulation.router_node import RouterNode
    from lab.simulation.tree.grid import TreeGrid

SLOW_SEEDS: Final = 5
SLOW_REST: Final = 3
"""Remainder of the seeds, one in five, with such faults."""
EACH_MAX: Final = 2
SLOW_MS: Final = (50, 900)
SLOW_FOR_MS: Final = (500, 4_000)
PRESSED_FOR_MS: Final = (200, 3_000)
CLOCK_OFFSET_NS_MAX: Final = 50 * NS_PER_MS


def draw_times(random: Random, seed: int, chaos_ns: int) -> tuple[int, ...]:
    """Draw the times of one kind of these faults, none in most seeds."""
    if seed % SLOW_SEEDS != SLOW_REST:
        return ()
    return tuple(random.randint(0, chaos_ns) for _ in range(random.randint(0, EACH_MAX)))


class SlowFaults:
    """Congestion and slowness, each of limited duration."""

    def __init__(self, grid: TreeGrid, mending: Mending) -> None:
        self._grid = grid
        self._world = grid.world
        self._mending = mending

    def slow_down(self) -> None:
        """Delay all that is said to and by a broker, a router or an end-point."""
        grid = self._grid
        nodes: list[Node] = [*grid.brokers.values(), *grid.routers.values()]
        nodes += grid.endpoints.values()
        node = nodes[self._world.between(0, len(nodes) - 1)]
        if node.is_up and node.peer not in grid.network.slow:
            self._set_slowness(node.peer, self._world.between(*SLOW_MS) * NS_PER_MS)
            self._mending.after(*SLOW_FOR_MS, partial(self._set_slowness, node.peer, 0))

    def _set_slowness(self, peer: str, slowness_ns: int) -> None:
        """Set the slowness of the present process of this name, which may be another one by now."""
        network = self._grid.network
        if slowness_ns:
            network.slow[peer] = slowness_ns
        else:
            network.slow.pop(peer, None)
        for session in network.nodes[peer].sessions.values():
            session.slowness_ns = network.slowness_ns(session)

    def press(self) -> None:
        """Fill the queue of a channel, inside a cloud or between clouds, and empty it again."""
        found = [
            (router, number)
            for router in self._grid.routers.values()
            if router.is_up and not router.is_paused
            for number in sorted(router.table.channels)
            if self._grid.wires.receiver(cloud_of(router.name), number)
        ]
        if found:
            router, number = found[self._world.between(0, len(found) - 1)]
            router.tell(WaterMarkCrossed(number, is_on=True, queued_events=800))
            relieve = partial(self._relieve, router, number, router.process)
            self._mending.after(*PRESSED_FOR_MS, relieve)

    @staticmethod
    def _relieve(router: RouterNode, number: int, process: int) -> None:
        if router.process == process:
            router.tell(WaterMarkCrossed(number, is_on=False, queued_events=10))


def set_clocks(grid: TreeGrid, seed: int) -> None:
    """Let the clocks of brokers and end-points differ."""
    if seed % SLOW_SEEDS != SLOW_REST:
        return
    between, most_ns = grid.world.between, CLOCK_OFFSET_NS_MAX
    for broker in grid.brokers.values():
        broker.clock_offset_ns = between(-most_ns, most_ns)
    for endpoint in grid.endpoints.values():
        endpoint.clock_offset_ns = between(-most_ns, most_ns)
