"""Run of one seed of a tree: start, faults and work; then all comes to rest and ends clean."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.net.command.endpoint_messages import Detach
from lab.simulation.bugs import planted
from lab.simulation.channel_changes import ChannelChanges, draw_changes
from lab.simulation.compaction import make_long
from lab.simulation.rules import RuleChanges
from lab.simulation.run import judged
from lab.simulation.tree.bugs import BUGS
from lab.simulation.tree.faults import TreeFaults
from lab.simulation.tree.flooding import TreeFlooding
from lab.simulation.tree.grid import TreeGrid
from lab.simulation.tree.guards import Guards
from lab.simulation.tree.moved_child import MovedChild
from lab.simulation.tree.properties.checks import TreeProperties
from lab.simulation.tree.properties.floods import check_nothing_floods
from lab.simulation.tree.properties.promises import contracts_between
from lab.simulation.tree.settled import settled_tree
from lab.simulation.tree.swarm import draw
from lab.simulation.workload import Workload
from lab.simulation.world import NS_PER_MS, NS_PER_S, PropertyBroken
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from lab.simulation.run import Verdict
    from lab.simulation.tree.swarm import TreeSwarm

START_NS: Final = 4 * NS_PER_S
ATTACH_NS: Final = 300 * NS_PER_MS
SLICE_NS: Final = 250 * NS_PER_MS
"""Interval of the safety checks during the faults."""
LOOK_NS: Final = 250 * NS_PER_MS
QUIET_LOOKS: Final = 2
"""Number of successive checks without work that count as rest: a last message may be in transit."""
REST_NS_MAX: Final = 60 * NS_PER_S
"""Longest time from the last fault until everything is at rest."""
END_NS_MAX: Final = 30 * NS_PER_S
AGAIN_NS: Final = (600 * NS_PER_MS, 1_200 * NS_PER_MS)
"""When those who come back subscribe again, after all have published."""


def run_seed(seed: int, *, bug: str = "", is_traced: bool = False) -> Verdict:
    """Run a seed from the first session to the last check, with a planted bug if one is named."""
    with planted(bug, BUGS):
        return Run(draw(seed), bug=bug, is_traced=is_traced).verdict()


class Run:
    """Run of one seed."""

    def __init__(self, swarm: TreeSwarm, *, bug: str = "", is_traced: bool = False) -> None:
        self.swarm = swarm
        self.properties = TreeProperties()
        found = None if swarm.is_cold else settled_tree(swarm, bug=bug)
        self._is_settled = found is not None
        self.grid = found or TreeGrid(swarm)
        self.grid.adopt(swarm, self.properties, is_traced=is_traced)
        self.properties.watch(self.grid)
        self.faults = TreeFaults(self.grid)
        self.guards = Guards(self.grid)
        inhabited = tuple(sorted({cloud_of(name) for name in self.grid.endpoints}))
        self.rules = RuleChanges(self.grid.world, inhabited, self.guards)
        self.wiring = self.grid.wiring
        self.channel_changes = ChannelChanges(self.wiring)
        self.workload = Workload(self.grid)
        self.flooding = TreeFlooding(self.grid)
        self.moved_child = MovedChild(self.grid)
        self.moved_contracts = 0
        """Contracts with other clouds that a moved cloud had in its new place."""
        for node in self.grid.endpoints.values():
            node.on_return = self.workload.restart

    def verdict(self) -> Verdict:
        return judged(self.swarm.seed, self.grid.world, self.run)

    def run(self) -> None:
        self.start()
        self.chaos()
        self.rest(REST_NS_MAX)
        self.properties.check_rest()
        self.flooding.check()
        self.end()
        if self.moved_child.move():
            self.live_again()

    def start(self) -> None:
        """Start the brokers and routers unless they are settled, and the end-points."""
        if not self._is_settled:
            self.grid.start()
        self.grid.start_endpoints()

    def chaos(self) -> None:
        world = self.grid.world
        start_ns = world.now_ns + (ATTACH_NS if self._is_settled else START_NS)
        if self.swarm.rule_changes:
            self.guards.start()
        self.workload.plan(start_ns)
        self.rules.plan(start_ns, self.swarm.rule_changes)
        self.flooding.plan(start_ns)
        changes = Random(f"tree channels {self.swarm.seed}")
        self.channel_changes.plan(
            start_ns, draw_changes(changes, self.swarm.seed, self.swarm.chaos_ns)
        )
        self.faults.plan(start_ns)
        for at_ns in self.swarm.compactions:
            world.at(start_ns + at_ns, self._compact)
        end_ns = start_ns + self.swarm.chaos_ns
        while world.now_ns < end_ns:
            world.run_until(min(end_ns, world.now_ns + SLICE_NS))
            self.properties.check_safety()
        self.workload.is_over = True
        self.faults.stop()
        if self.swarm.is_left_cut:
            self.faults.cut_for_good()

    def _compact(self) -> None:
        """Let one of the brokers compact its journal."""
        nodes = list(self.grid.brokers.values())
        broker = nodes[self.grid.world.between(0, len(nodes) - 1)].broker
        if broker is not None:
            make_long(broker)

    def end(self) -> None:
        """Detach every end-point, and check that nothing is left, floods included."""
        for node in self.grid.endpoints.values():
            if node.is_up and not node.application.has_left:
                node.application.ask(Detach())
        self.rest(END_NS_MAX)
        self.properties.check_empty()
        check_nothing_floods(self.grid)

    def live_again(self) -> None:
        """Let all end-points come back, publish and subscribe, and leave."""
        world = self.grid.world
        self.rest(REST_NS_MAX)  # Until all brokers agree about the channels of the new tree.
        for node in self.grid.endpoints.values():
            node.start()
            for at_ns in AGAIN_NS:
                world.after(at_ns, self.workload.subscribe, node)
        world.run_until(world.now_ns + AGAIN_NS[-1])
        self.rest(REST_NS_MAX)
        self.properties.check_rest()
        self.moved_contracts = sum(
            self.moved_child.moved in (cloud_of(each.name), cloud_of(each.subscriber))
            for each in contracts_between(self.grid)
        )
        self.end()

    def rest(self, within_ns: int) -> None:
        """Run until nothing is in progress; raise with what is left at the deadline."""
        world = self.grid.world
        end_ns = world.now_ns + within_ns
        quiet, has_waited = 0, False
        while True:
            world.run_until(world.now_ns + LOOK_NS)
            self.properties.check_safety()
            unrest = self.properties.unrest() or self.flooding.unrest() or self.guards.unrest()
            unrest = unrest or self.wiring.unrest()
            quiet = 0 if unrest is not None else quiet + 1
            if quiet == QUIET_LOOKS:
                return
            if not has_waited and world.now_ns >= end_ns - within_ns // 2:
                has_waited = True
                self.flooding.end_refused()
            if world.now_ns >= end_ns:
                raise PropertyBroken("everything comes to rest", unrest or "a last message")
