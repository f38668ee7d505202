"""A grid to be run on this machine, as values: a cloud, simulated PMUs and subscribers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridstat.console.config.cloud_file import Topology
    from gridstat.model.qos import QosRequest
    from gridstat.model.rate_law import Period


@dataclass(frozen=True, slots=True)
class Pmu:
    """A simulated phasor measurement unit; names are full, edges one or two."""

    name: str
    edges: tuple[str, ...]
    period: Period
    quantities: tuple[str, ...]
    phase_ns: int = 0

    def variable_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}/{quantity}" for quantity in self.quantities)


@dataclass(frozen=True, slots=True)
class Subscriber:
    """Who wants which variables, under which contract."""

    name: str
    edges: tuple[str, ...]
    patterns: tuple[str, ...]
    qos: QosRequest


@dataclass(frozen=True, slots=True)
class PipelineWish:
    """Where Spark runs, by which edges its alerts enter the grid, and by which rules."""

    edges: tuple[str, ...]
    master: str = "local[2]"
    driver_memory: str = "1g"
    rules: str = ""


@dataclass(frozen=True, slots=True)
class Grid:
    """A whole file; `source` is its name, for messages to people."""

    host: str
    topology: Topology
    pmus: tuple[Pmu, ...]
    subscribers: tuple[Subscriber, ...]
    source: str
    recorder: Subscriber | None = None
    pipeline: PipelineWish | None = None

    @property
    def cloud(self) -> str:
        return self.topology.cloud

    def summary(self) -> str:
        variables = sum(len(pmu.quantities) for pmu in self.pmus)
        return (
            f"cloud {self.cloud}: {len(self.topology.routers)} status routers, "
            f"{len(self.topology.channels)} event channels, {len(self.pmus)} PMUs with "
            f"{variables} variables, {len(self.subscribers)} subscribers"
        )
