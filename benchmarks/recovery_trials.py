"""Faults on the way of single-path streams and on the broker, each measured from the fault on.

An event that was created after a fault was complete, and arrived, can only have used another way.
Beside each single-path stream runs one over two paths, which no fault may cost anything.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from benchmarks.errors import BenchmarkError
from benchmarks.recovery_rig import NS_PER_MS, NS_PER_S, RecoveryRig
from lab.grid_plan import BROKER, link_name
from lab.ledger import Window
from lab.relay import Direction

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from benchmarks.recovery_rig import Facts
    from lab.ledger import Verdict

SINGLE: Final = "centre/view-0"
DOUBLE: Final = "centre/view-1"
RATE: Final = 60
BEFORE_NS: Final = 200 * NS_PER_MS
"""Time before the fault in which events count, too, since they may be in transit."""


@dataclass(frozen=True, slots=True)
class Outage:
    """One fault: its detection by the broker, the return of the slowest stream, and the losses.

    `lost` is of the stream that lost most. `back_s` is from the start of a killed router's new
    process until the broker had it in step.
    """

    what: str
    detect_ms: float
    restore_ms: float
    lost: int
    two_path_lost: int
    duplicate: int
    back_s: float = 0.0


@dataclass(frozen=True, slots=True)
class CloudState:
    """State that must not change: contracts and their paths, identifiers, tables."""

    paths: Mapping[int, Sequence[Sequence[str]]]
    variables: Mapping[str, int]
    digests: Mapping[str, str]

    @classmethod
    def of(cls, survey: Facts) -> CloudState:
        return cls(
            paths={each["subscription_id"]: each["paths"] for each in survey["subscriptions"]},
            variables={each["name"]: each["variable_id"] for each in survey["publications"]},
            digests={router["name"]: router["digest"] for router in survey["routers"]},
        )

    def change_to(self, after: CloudState) -> StateChange:
        kept = self.paths.keys() & after.paths.keys()
        moved = sum(self.paths[number] != after.paths[number] for number in kept)
        return StateChange(
            moved=moved,
            are_others=self.paths.keys() != after.paths.keys() or self.variables != after.variables,
            are_reordered=moved == 0 and self.digests != after.digests,
        )


@dataclass(frozen=True, slots=True)
class StateChange:
    """Differences of two states.

    `moved` counts moved contracts; `are_others` is set if contracts or variables differ,
    `are_reordered` if routers have other orders although nothing was moved.
    """

    moved: int = 0
    are_others: bool = False
    are_reordered: bool = False


@dataclass(frozen=True, slots=True)
class BrokerOutage:
    """One death of the broker, and its return.

    `digest_equal_s` is from the start of its new process until it is in step with all routers;
    `change` is the difference to the state before.
    """

    dead_s: float
    change: StateChange
    expected: int
    lost: int
    two_path_lost: int
    digest_equal_s: float


@dataclass(frozen=True, slots=True)
class _Broken:
    """A fault in effect: its begin, the time of its completion, and the affected variables."""

    from_ns: int
    done_ns: int
    variables: dict[str, int]


class PathFaults:
    """Faults one after another, each on the path that some stream uses at that time."""

    def __init__(self, rig: RecoveryRig, random: Random) -> None:
        self._rig = rig
        self._random = random
        self._publisher = rig.grid.plan.end_points[0].name
        self._numbers = rig.load.variables_of(self._publisher)

    def cut_channel(self, *, is_one_way: bool) -> Outage:
        """Cut a wire between two routers of a path; heal it when the streams are back."""
        rig = self._rig
        rig.await_whole()
        paths = self._paths()
        near, far = self._random.choice(list(pairwise(self._any_of(paths))))
        wire, direction = self._wire(near, far)
        hit = {name for name, path in paths.items() if (near, far) in pairwise(path)}
        self._wait_a_phase()
        from_ns = time.time_ns()
        rig.grid.network.cut(wire, direction=direction if is_one_way else Direction.BOTH)
        broken = self._broken(from_ns, hit)
        label = f"{rig.full_name(near)}→{rig.full_name(far)}"
        try:
            restored_ns = self._restored_ns(broken)
            down = rig.mark("channel_down", from_ns=from_ns, channel=label)
            for name in hit:
                if (near, far) in pairwise(self._paths()[name]):
                    raise BenchmarkError(f"{name} still goes over {label}, which is cut")
        finally:
            rig.grid.network.heal(wire)
        return self._outage(f"cut {label}", broken, down.at_ns, restored_ns)

    def kill_router(self) -> Outage:
        """Kill a router of a path, an edge or not; start it again when the streams are back."""
        rig = self._rig
        rig.await_whole()
        paths = self._paths()
        victim = self._random.choice(self._any_of(paths))
        hit = {name for name, path in paths.items() if victim in path}
        self._wait_a_phase()
        from_ns = time.time_ns()
        rig.grid.daemons[victim].kill()
        broken = self._broken(from_ns, hit)
        name = rig.full_name(victim)
        try:
            restored_ns = self._restored_ns(broken)
            down = rig.mark("router_down", from_ns=from_ns, router=name)
        finally:
            started_ns = time.time_ns()
            rig.grid.daemons[victim].start()
        await_in_step(rig, name, since_ns=started_ns)
        back_s = (time.time_ns() - started_ns) / NS_PER_S
        return self._outage(f"kill {name}", broken, down.at_ns, restored_ns, back_s=back_s)

    def cut_access(self, *, is_publishers: bool) -> Outage:
        """Cut the wire between an end-point and the edge of a path; it has a second edge.

        Such a wire carries no probes: a silent session reveals the cut, after some seconds.
        """
        rig = self._rig
        rig.await_whole()
        paths = self._paths()
        end = self._publisher if is_publishers else SINGLE
        at = 0 if is_publishers else -1
        edge = self._any_of(paths)[at]
        hit = {name for name, path in paths.items() if path[at] == edge}
        self._wait_a_phase()
        from_ns = time.time_ns()
        rig.grid.network.cut(link_name(end, edge))
        broken = self._broken(from_ns, hit)
        try:
            restored_ns = self._restored_ns(broken)
        finally:
            rig.grid.network.heal(link_name(end, edge))
        return self._outage(f"cut {end} from {edge}", broken, restored_ns, restored_ns)

    def _outage(
        self, what: str, broken: _Broken, down_ns: int, restored_ns: int, *, back_s: float = 0.0
    ) -> Outage:
        """Wait until all is whole, and judge all events from the fault to that time."""
        rig = self._rig
        rig.await_whole()
        window = Window(broken.from_ns - BEFORE_NS, time.time_ns())
        rig.settle()
        single, double = (rig.load.judge_one(name, window) for name in (SINGLE, DOUBLE))
        rig.load.forget_before(window.from_ns)
        return Outage(
            what=what,
            detect_ms=(down_ns - broken.from_ns) / NS_PER_MS,
            restore_ms=(restored_ns - broken.from_ns) / NS_PER_MS,
            lost=most_lost(single),
            two_path_lost=len(double.lost),
            duplicate=len(single.duplicate) + len(double.duplicate),
            back_s=back_s,
        )

    def _broken(self, from_ns: int, hit: set[str]) -> _Broken:
        return _Broken(from_ns, time.time_ns(), {name: self._numbers[name] for name in hit})

    def _restored_ns(self, broken: _Broken) -> int:
        numbers = broken.variables.values()
        came_ns = self._rig.first_events_ns(SINGLE, numbers, created_from_ns=broken.done_ns)
        return max(came_ns)

    def _paths(self) -> dict[str, list[str]]:
        """Return the routers, by short names, on the present path of each single-path stream."""
        return {
            name: [router.partition("/")[2] for router in facts["paths"][0]]
            for name, facts in self._rig.subscriptions(SINGLE).items()
        }

    def _any_of(self, paths: dict[str, list[str]]) -> list[str]:
        return paths[self._random.choice(sorted(paths))]

    def _wire(self, near: str, far: str) -> tuple[str, Direction]:
        """Return the wire between two routers, and its direction from near to far."""
        forward = link_name(near, far)
        if forward in self._rig.grid.network.wires:
            return forward, Direction.FORWARD
        return link_name(far, near), Direction.BACKWARD

    def _wait_a_phase(self) -> None:
        """Wait a random time, so that faults fall anywhere between two events and two probes."""
        time.sleep(self._random.random() / 10)


def kill_broker(rig: RecoveryRig, *, dead_s: float) -> BrokerOutage:
    """Kill the broker, leave it dead, start it; return the differences and the losses."""
    rig.await_whole()
    survey = rig.survey()
    before, term = CloudState.of(survey), survey["term"]
    window_ns = time.time_ns()
    rig.grid.daemons[BROKER].kill()
    time.sleep(dead_s)
    started_ns = time.time_ns()
    rig.grid.daemons[BROKER].start()
    rig.await_none(lambda: _complaint_of_digests(rig))
    in_step_ns = time.time_ns()
    reports = rig.reports()
    if all(report.facts["in_step"] == "1" for report in reports):
        # The survey waits for a session, too; the log has the exact times.
        in_step_ns = max(report.at_ns for report in reports)
    rig.await_whole()
    survey = rig.survey()
    if survey["term"] <= term:
        raise BenchmarkError(f"term {term} of the broker became {survey['term']}")
    window = Window(window_ns - BEFORE_NS, time.time_ns())
    rig.settle()
    single, double = (rig.load.judge_one(name, window) for name in (SINGLE, DOUBLE))
    rig.load.forget_before(window.from_ns)
    return BrokerOutage(
        dead_s=dead_s,
        change=before.change_to(CloudState.of(survey)),
        expected=single.expected + double.expected,
        lost=len(single.lost),
        two_path_lost=len(double.lost),
        digest_equal_s=(in_step_ns - started_ns) / NS_PER_S,
    )


def await_in_step(rig: RecoveryRig, router: str, *, since_ns: int) -> None:
    """Wait until a router's new process has reported, and confirmed the wanted table."""
    rig.mark("router_reported", from_ns=since_ns, router=router)

    def complaint() -> str | None:
        found = next(each for each in rig.survey()["routers"] if each["name"] == router)
        is_equal = found["digest"] == found["confirmed_digest"]
        is_there = found["is_connected"] and found["in_step"] and is_equal
        return None if is_there else f"{router} is not in step: {found}"

    rig.await_none(complaint)


def most_lost(verdict: Verdict) -> int:
    """Return the losses of the variable that lost most."""
    return max(Counter(variable for variable, _ in verdict.lost).values(), default=0)


def _complaint_of_digests(rig: RecoveryRig) -> str | None:
    behind = [
        router["name"]
        for router in rig.survey()["routers"]
        if not (router["is_connected"] and router["digest"] == router["confirmed_digest"])
    ]
    return f"not in step: {', '.join(behind)}" if behind else None
