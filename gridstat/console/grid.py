"""A grid to be run on this machine, as values: clouds, a tree, simulated PMUs and subscribers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.console.config.cloud_file import Topology
    from gridstat.model.cloud import EventChannel, Router
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
    """End-point that subscribes to some variables under one contract."""

    name: str
    edges: tuple[str, ...]
    patterns: tuple[str, ...]
    qos: QosRequest


@dataclass(frozen=True, slots=True)
class PipelineOptions:
    """Master of Spark, edges for alerts, and alarm rules."""

    edges: tuple[str, ...]
    master: str = "local[2]"
    driver_memory: str = "1g"
    rules: str = ""


@dataclass(frozen=True, slots=True)
class Tree:
    """Clouds beside the first one, and the brokers above them all; empty for a lone cloud.

    `parents` has the parent of every broker but the root, the leaf brokers under their cloud's
    name; `channels` those between clouds, by their owner. Brokers above come before those below.
    """

    further: tuple[Topology, ...] = ()
    brokers: tuple[str, ...] = ()
    parents: Mapping[str, str] = field(default_factory=dict)
    channels: Mapping[str, tuple[EventChannel, ...]] = field(default_factory=dict)

    def children(self, broker: str) -> tuple[str, ...]:
        return tuple(name for name, parent in self.parents.items() if parent == broker)


@dataclass(frozen=True, slots=True)
class Grid:
    """A whole file; `source` is its name, for messages to people."""

    host: str
    topology: Topology
    """The first cloud; a grid of several has more in `tree`."""
    pmus: tuple[Pmu, ...]
    subscribers: tuple[Subscriber, ...]
    source: str
    recorder: Subscriber | None = None
    pipeline: PipelineOptions | None = None
    tree: Tree = Tree()

    @property
    def cloud(self) -> str:
        return self.topology.cloud

    @property
    def clouds(self) -> tuple[Topology, ...]:
        return (self.topology, *self.tree.further)

    @property
    def routers(self) -> tuple[Router, ...]:
        return tuple(router for cloud in self.clouds for router in cloud.routers)

    @property
    def has_tree(self) -> bool:
        return bool(self.tree.brokers)

    def summary(self) -> str:
        variables = sum(len(pmu.quantities) for pmu in self.pmus)
        channels = sum(len(cloud.channels) for cloud in self.clouds)
        between = sum(len(owned) for owned in self.tree.channels.values())
        clouds = ", ".join(cloud.cloud for cloud in self.clouds)
        where = f"clouds {clouds} under {self.tree.brokers[0]}" if self.has_tree else ""
        return (
            f"{where or f'cloud {clouds}'}: {len(self.routers)} status routers, "
            f"{channels + between} event channels"
            f"{f' ({between} of them between clouds)' if between else ''}, "
            f"{len(self.pmus)} PMUs with {variables} variables, "
            f"{len(self.subscribers)} subscribers"
        )
