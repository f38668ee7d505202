"""Processes that are killed and started again: end-points, edge routers, routers with large tables.

Each figure is counted from the start of the new process, and so includes its start-up. The chain
has no second way, so that nothing can move and everything must be restored.
"""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Self

from benchmarks.errors import BenchmarkError
from benchmarks.recovery_rig import NS_PER_S, START_S_MAX, WHOLE_S_MAX, marks_of, survey_of
from lab.grid import Grid
from lab.grid_plan import BROKER, EndPointPlan, GridPlan, LinkPlan, RouterPlan

if TYPE_CHECKING:
    from pathlib import Path

    from benchmarks.recovery_rig import Facts, RecoveryRig

PUBLISHER: Final = "north/pmu-0"
SUBSCRIBER: Final = "centre/view-0"
EDGES: Final = ("e0", "e1")
ROUTERS: Final = ("i0", "e0", "e1")
REGISTERED_S_MAX: Final = 600.0


def chain_plan() -> GridPlan:
    """Return the plan of a chain: pmu ── e0 ── i0 ── e1 ── view."""
    return GridPlan(
        routers=(RouterPlan("e0", is_edge=True), RouterPlan("i0"), RouterPlan("e1", is_edge=True)),
        links=(LinkPlan("e0", "i0"), LinkPlan("i0", "e1")),
        end_points=(EndPointPlan(PUBLISHER, ("e0",)), EndPointPlan(SUBSCRIBER, ("e1",))),
    )


class EndPointReturns:
    """Crashes of the ends of a chain, with checks of what must survive each."""

    def __init__(self, rig: RecoveryRig) -> None:
        self._rig = rig
        self._numbers = rig.load.variables_of(PUBLISHER)

    def publisher(self) -> float:
        """Restart the publisher; return the time until its subscriber has all variables."""
        self._rig.await_whole()
        kept = self._kept()
        took_s = self._restart(PUBLISHER)
        self._check(kept, "publisher")
        return took_s

    def subscriber(self) -> float:
        """Restart the subscriber; return the time until it has all variables."""
        self._rig.await_whole()
        variables, before = self._kept()
        took_s = self._restart(SUBSCRIBER)
        now_variables, now = self._kept()
        if now_variables != variables or now & before or len(now) != len(before):
            raise BenchmarkError(f"contracts {before} of a dead subscriber became {now}")
        return took_s

    def edge(self, at: int) -> float:
        """Restart an edge router; return the time until events pass by it again."""
        self._rig.await_whole()
        kept = self._kept()
        took_s = self._restart(EDGES[at % len(EDGES)])
        self._check(kept, "edge router")
        return took_s

    def _restart(self, name: str) -> float:
        daemon = self._rig.grid.daemons[name]
        daemon.kill()
        started_ns = time.time_ns()
        daemon.start()
        came_ns = self._rig.first_events_ns(
            SUBSCRIBER, self._numbers.values(), created_from_ns=started_ns
        )
        self._rig.load.forget_before(started_ns)
        return (max(came_ns) - started_ns) / NS_PER_S

    def _kept(self) -> tuple[dict[str, int], frozenset[int]]:
        """Return the identifiers of the variables, and of the contracts."""
        contracts = self._rig.subscriptions(SUBSCRIBER).values()
        return self._rig.variable_ids(), frozenset(each["subscription_id"] for each in contracts)

    def _check(self, kept: tuple[dict[str, int], frozenset[int]], who: str) -> None:
        now = self._kept()
        if now != kept:
            raise BenchmarkError(f"the {who} came back, and {kept} became {now}")


@dataclass(frozen=True, slots=True)
class Restored:
    """Times until a killed router is in step again: from its process, and from its report."""

    restore_s: float
    table_s: float


class ManyOrders:
    """Chain whose routers carry many variables, none of which is sent."""

    def __init__(self, folder: Path, orders: int) -> None:
        self._grid = Grid(chain_plan(), folder)
        self._orders = orders
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            grid = stack.enter_context(self._grid)
            grid.start(within_s=START_S_MAX)
            for name, verb in ((PUBLISHER, "publish"), (SUBSCRIBER, "subscribe")):
                arguments = ["-m", "benchmarks.many_variables", verb, grid.plan.full_name(name)]
                arguments += [str(grid.files.folder(name)), grid.plan.full_name(PUBLISHER)]
                program = grid.program(name, [sys.executable, *arguments, str(self._orders)])
                program.start()
                program.wait_ready(within_s=REGISTERED_S_MAX)
            grid.wait_for(grid.complaint_of_state, within_s=WHOLE_S_MAX)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.__exit__(*details)  # type: ignore[arg-type]

    def restart(self, at: int) -> Restored:
        """Kill a router and start it at once; check that its table is the same."""
        grid = self._grid
        name = ROUTERS[at % len(ROUTERS)]
        grid.wait_for(grid.complaint_of_state, within_s=WHOLE_S_MAX)
        before = self._table(name)
        if before["variables"] < self._orders:
            raise BenchmarkError(f"{name} carries only {before['variables']} variables")
        grid.daemons[name].kill()
        started_ns = time.time_ns()
        grid.daemons[name].start()
        grid.wait_for(lambda: self._complaint(name, started_ns), within_s=WHOLE_S_MAX)
        in_step_ns = time.time_ns()
        if self._table(name) != before:
            raise BenchmarkError(f"{name} got {self._table(name)} after {before}")
        reported_ns = self._reported_ns(name, started_ns)
        assert reported_ns is not None
        return Restored(
            restore_s=(in_step_ns - started_ns) / NS_PER_S,
            table_s=(in_step_ns - reported_ns) / NS_PER_S,
        )

    def _complaint(self, name: str, started_ns: int) -> str | None:
        # A survey of a large cloud is work for the broker, so it is asked only when it can answer.
        if self._reported_ns(name, started_ns) is None:
            return f"{name} has not reported"
        found = self._facts(name)
        is_equal = found["digest"] == found["confirmed_digest"]
        return None if found["in_step"] and is_equal else f"{name} is not in step: {found}"

    def _reported_ns(self, name: str, from_ns: int) -> int | None:
        full_name = self._grid.plan.full_name(name)
        for mark in marks_of(self._grid.daemons[BROKER].errors):
            is_report = mark.word == "router_reported" and mark.facts["router"] == full_name
            if is_report and mark.at_ns >= from_ns:
                return mark.at_ns
        return None

    def _table(self, name: str) -> Facts:
        facts = self._facts(name)
        return {key: facts[key] for key in ("digest", "variables", "paths")}

    def _facts(self, name: str) -> Facts:
        full_name = self._grid.plan.full_name(name)
        routers: list[Facts] = survey_of(self._grid)["routers"]
        return next(router for router in routers if router["name"] == full_name)
