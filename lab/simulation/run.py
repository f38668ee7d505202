"""Run of one seed: start, faults and work; then faults stop, all comes to rest and ends clean."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.net.command.endpoint_messages import Detach
from lab.simulation.bugs import planted
from lab.simulation.channel_changes import ChannelChanges, draw_changes
from lab.simulation.cloud import Cloud
from lab.simulation.cloud_changes import CloudChanges
from lab.simulation.cloud_wiring import CloudWiring
from lab.simulation.compaction import make_long
from lab.simulation.faults import Faults
from lab.simulation.properties import Properties
from lab.simulation.rules import RuleChanges
from lab.simulation.settled import settled_cloud
from lab.simulation.swarm import draw
from lab.simulation.workload import Workload
from lab.simulation.world import NS_PER_MS, NS_PER_S, PropertyBroken

if TYPE_CHECKING:
    from collections.abc import Callable

    from lab.simulation.swarm import Swarm
    from lab.simulation.world import World

START_NS: Final = 800 * NS_PER_MS
ATTACH_NS: Final = 300 * NS_PER_MS
SLICE_NS: Final = 500 * NS_PER_MS
"""Interval of the safety checks during the faults."""
LOOK_NS: Final = 250 * NS_PER_MS
REST_NS_MAX: Final = 40 * NS_PER_S
"""Longest time from the last fault until everything is at rest."""
END_NS_MAX: Final = 20 * NS_PER_S
MESSAGES_MIN: Final = 1_000
"""Fewest messages of a seed; it continues with pings until it has so many."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Outcome of a seed; `rule` is empty if everything held."""

    seed: int
    digest: str
    steps: int
    messages: int
    virtual_ns: int
    rule: str = ""
    complaint: str = ""
    trace_lines: tuple[str, ...] = ()

    @property
    def is_good(self) -> bool:
        return not self.rule


def judged(seed: int, world: World, run: Callable[[], None]) -> Verdict:
    """Return the verdict on a run in this world."""
    rule = complaint = ""
    try:
        run()
    except PropertyBroken as broken:
        rule, complaint = broken.rule, str(broken)
    except Exception as error:
        # A failure of a machine is a finding like any other.
        rule, complaint = "machines do not fail", f"{type(error).__name__}: {error}"
        if world.is_traced:
            raise
    return Verdict(
        seed,
        world.digest(),
        world.steps,
        world.messages,
        world.now_ns,
        rule,
        complaint,
        tuple(world.trace_lines),
    )


def run_seed(seed: int, *, bug: str = "", is_traced: bool = False) -> Verdict:
    """Run a seed from the first session to the last check, with a planted bug if one is named."""
    with planted(bug):
        return Run(draw(seed), bug=bug, is_traced=is_traced).verdict()


class Run:
    """Run of one seed."""

    def __init__(self, swarm: Swarm, *, bug: str = "", is_traced: bool = False) -> None:
        self.swarm = swarm
        self.properties = Properties()
        found = None if swarm.is_cold else settled_cloud(swarm, bug=bug)
        self._is_settled = found is not None
        self.cloud = found or Cloud(swarm)
        self.cloud.adopt(swarm, self.properties, is_traced=is_traced)
        self.properties.watch(self.cloud)
        self.faults = Faults(self.cloud)
        self.rules = RuleChanges(self.cloud.world, self.cloud.clouds, self.cloud)
        self.channel_changes = ChannelChanges(CloudWiring(self.cloud))
        self.workload = Workload(self.cloud, CloudChanges(self.cloud).change)
        for node in self.cloud.endpoints.values():
            node.on_return = self.workload.restart

    def verdict(self) -> Verdict:
        return judged(self.swarm.seed, self.cloud.world, self._run)

    def _run(self) -> None:
        world = self.cloud.world
        if not self._is_settled:
            self.cloud.start()
        self.cloud.start_endpoints()
        start_ns = world.now_ns + (ATTACH_NS if self._is_settled else START_NS)
        self.workload.plan(start_ns)
        self.rules.plan(start_ns, self.swarm.rule_changes)
        changes = Random(f"channels {self.swarm.seed}")
        times_ns = draw_changes(changes, self.swarm.seed, self.swarm.chaos_ns)
        self.channel_changes.plan(start_ns, times_ns)
        self.faults.plan(start_ns)
        for at_ns in self.swarm.compactions:
            world.at(start_ns + at_ns, self._compact)
        end_ns = start_ns + self.swarm.chaos_ns
        while world.now_ns < end_ns:
            world.run_until(min(end_ns, world.now_ns + SLICE_NS))
            self.properties.check_safety()
        self.workload.is_over = True
        self.faults.stop()
        self._rest(REST_NS_MAX)
        while world.messages < MESSAGES_MIN:
            world.run_until(world.now_ns + NS_PER_S)
            self._rest(REST_NS_MAX)
        self.properties.check_rest()
        for node in self.cloud.endpoints.values():
            if node.is_up and not node.application.has_left:
                node.application.ask(Detach())
        self._rest(END_NS_MAX)
        self.properties.check_empty()

    def _compact(self) -> None:
        if self.cloud.broker is not None:
            make_long(self.cloud.broker)

    def _rest(self, within_ns: int) -> None:
        """Run until nothing is in progress; raise with what is left at the deadline."""
        world = self.cloud.world
        end_ns = world.now_ns + within_ns
        while True:
            world.run_until(world.now_ns + LOOK_NS)
            unrest = self.properties.unrest()
            if unrest is None:
                return
            if world.now_ns >= end_ns:
                raise PropertyBroken("everything comes to rest", unrest)
