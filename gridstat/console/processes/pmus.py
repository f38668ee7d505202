"""The process of all simulated PMUs: at each one's instants, a frame of its quantities leaves."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import numpy as np

from gridstat.console.processes.simulation_process import edges_of, play
from gridstat.console.simulation.disturbance_cycle import DisturbanceCycle
from gridstat.console.simulation.schedule import Schedule
from gridstat.endpoint.connection_setup import connect
from gridstat.model.rate_law import NS_PER_S
from gridstat.model.status import BuiltinType

if TYPE_CHECKING:
    from gridstat.console.access import Access
    from gridstat.console.grid import Grid
    from gridstat.console.processes.lines import Line
    from gridstat.console.simulation.schedule import Measurement
    from gridstat.endpoint.connection import Connection
    from gridstat.endpoint.publisher import Publication


class Pmus:
    """Publishes from its start to `pause`; a frame that would be too old is left out and counted.

    A process that was held up would otherwise send old frames, which the first router drops.
    """

    def __init__(self, grid: Grid, access: Access) -> None:
        self._pmus = grid.pmus
        self._cycle = DisturbanceCycle()
        self._connections: list[Connection] = []
        self._publications: list[list[Publication]] = []
        self._newest: dict[str, float] = {}
        self._is_publishing = True
        try:
            for pmu in grid.pmus:
                connection = connect(
                    edges_of(access, pmu.edges),
                    pmu.name,
                    certificates=access.certificates.path,
                    timeout_s=30.0,
                )
                self._connections.append(connection)
                self._publications.append(
                    connection.publish_many(
                        pmu.quantities,
                        BuiltinType.FLOAT64,
                        period=pmu.period,
                        phase_ns=pmu.phase_ns,
                    )
                )
        except BaseException:
            self.close()
            raise
        self._schedule = Schedule(grid.pmus, start_ns=time.time_ns())

    def handle(self, do: str) -> Line:
        if do == "pause":
            self._is_publishing = False
        return {
            "is": "paused" if do == "pause" else "report",
            "values": self._newest,
            "published": {
                name: [progress.first_slot, progress.newest_slot]
                for pmu, progress in zip(self._pmus, self._schedule.progress, strict=True)
                if progress.first_slot is not None
                for name in pmu.variable_names()
            },
            "left_out": [
                {
                    "variables": pmu.variable_names(),
                    "slots": progress.left_out,
                    "gaps": list(progress.gaps),
                }
                for pmu, progress in zip(self._pmus, self._schedule.progress, strict=True)
                if progress.left_out and do == "pause"
            ],
        }

    def wait_s(self) -> float | None:
        next_ns = self._schedule.next_ns() if self._is_publishing else None
        return None if next_ns is None else max(0, next_ns - time.time_ns()) / NS_PER_S

    def work(self) -> None:
        if self._is_publishing:
            for measurement in self._schedule.take_due(time.time_ns):
                self._publish(measurement)

    def _publish(self, measurement: Measurement) -> None:
        pmu = self._pmus[measurement.pmu]
        phasor = self._cycle.phasor_at(measurement.created_ns / NS_PER_S, station=measurement.pmu)
        values = [phasor.quantity(name) for name in pmu.quantities]
        self._newest |= dict(zip(pmu.variable_names(), values, strict=True))
        self._connections[measurement.pmu].send_many(
            self._publications[measurement.pmu],
            np.array(values),
            np.full(len(values), measurement.created_ns, np.uint64),
        )

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


if __name__ == "__main__":
    sys.exit(play(Pmus))
