"""The process of all simulated PMUs: at each one's instants, a frame of its quantities leaves."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np

from gridstat.console.grid import router_key
from gridstat.console.processes.lines import addresses_of
from gridstat.console.simulation.phasors import phasor_at
from gridstat.console.simulation.schedule import Schedule
from gridstat.endpoint import Sender
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gridstat.console.grid import Grid, Pmu
    from gridstat.console.processes.lines import Address, Line
    from gridstat.console.simulation.schedule import Measurement
    from gridstat.console.static_plan import StaticPlan


class PmuProcess:
    """Publishes between `publish` and `pause`; frames missed by a late wake-up are made up for."""

    def __init__(self, grid: Grid, plan: StaticPlan) -> None:
        self._plan = plan
        self._pmus = grid.pmus
        self._senders: list[Sender] = []
        self._variable_ids = [_variable_ids(plan, pmu) for pmu in grid.pmus]
        self._newest: list[dict[str, float]] = [{} for _ in grid.pmus]
        self._schedule = Schedule((), start_ns=0)
        self._is_publishing = False

    def ready(self) -> Line:
        return {"is": "ready", "addresses": {}}

    def handle(self, line: Line) -> Line | None:
        match line["do"]:
            case "connect":
                self._connect(addresses_of(line))
                return {"is": "connected"}
            case "publish":
                self._schedule = Schedule(self._pmus, start_ns=time.time_ns())
                self._is_publishing = True
                return {"is": "publishing"}
            case "pause":
                self._is_publishing = False
                return {"is": "paused", **self.report()}
            case "report":
                return {"is": "report", **self.report()}
            case _:
                return None

    def _connect(self, addresses: Mapping[str, Address]) -> None:
        self._senders = [
            Sender(self._plan.channel_of_pmu[pmu.name], addresses[router_key(pmu.router)])
            for pmu in self._pmus
        ]

    def report(self) -> Line:
        return {
            "pmus": {
                pmu.name: {
                    "values": newest,
                    "first_slot": progress.first_slot,
                    "newest_slot": progress.newest_slot,
                    "skipped": progress.skipped,
                }
                for pmu, newest, progress in zip(
                    self._pmus, self._newest, self._schedule.progress, strict=False
                )
            }
        }

    def wait_s(self) -> float | None:
        next_ns = self._schedule.next_ns() if self._is_publishing else None
        return None if next_ns is None else max(0, next_ns - time.time_ns()) / NS_PER_S

    def filenos(self) -> Sequence[int]:
        return ()

    def work(self) -> None:
        if self._is_publishing:
            for measurement in self._schedule.take_due(time.time_ns()):
                self._publish(measurement)

    def _publish(self, measurement: Measurement) -> None:
        pmu = self._pmus[measurement.pmu]
        phasor = phasor_at(measurement.created_ns / NS_PER_S, station=measurement.pmu)
        values = [phasor.quantity(name) for name in pmu.quantities]
        self._newest[measurement.pmu] = dict(zip(pmu.quantities, values, strict=True))
        created_ns = np.full(len(values), measurement.created_ns, np.uint64)
        variable_ids = self._variable_ids[measurement.pmu]
        self._senders[measurement.pmu].send_many(variable_ids, np.array(values), created_ns)

    def close(self) -> None:
        for sender in self._senders:
            sender.close()


def _variable_ids(plan: StaticPlan, pmu: Pmu) -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    found = [variable.variable_id for variable in plan.variables if variable.pmu is pmu]
    return np.array(found, np.uint32)
