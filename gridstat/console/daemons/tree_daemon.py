"""One QoS broker as a process: the pure machine, its journal, its listener and its figures.

Its children dial it; it dials its own parent, if it has one.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.broker.settings import HOLD_GROWTH_MAX
from gridstat.broker.tree.qos_broker import QosBroker
from gridstat.broker.tree.tree_settings import TreeSettings as MachineSettings
from gridstat.console.config.metrics_tls import LOOPBACK, metrics_tls
from gridstat.console.config.toml_file import beside
from gridstat.console.config.tree_file import load_tree
from gridstat.console.daemons.broker_parts import BrokerParts, listening
from gridstat.console.daemons.broker_service import Line, ServiceCallbacks, serve_until_stopped
from gridstat.console.daemons.descriptors import take_descriptors
from gridstat.console.daemons.logs import set_up_logging
from gridstat.console.daemons.metrics_server import MetricsServer
from gridstat.console.daemons.stand_by import JournalPlan, journal_plan
from gridstat.console.daemons.tree_metrics import TreeCollector, TreeFigures
from gridstat.model.band_law import BandPolicy
from gridstat.model.rate_law import NS_PER_S
from gridstat.net.command.driver import Driver, DriverEnvironment
from gridstat.net.command.identity import Identity, Role
from gridstat.net.core_dumps import forbid_core_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gridstat.console.config.metrics_tls import MetricsTls
    from gridstat.console.config.tree_file import TreeSettings
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.machine import Event

SERVED: Final = (Role.OPERATOR,)


@dataclass(frozen=True, slots=True)
class TreePlan:
    """A QoS broker as its file describes it."""

    settings: TreeSettings
    channels: tuple[EventChannel, ...]
    certificates: Path
    journal: JournalPlan
    metrics_tls: MetricsTls | None = None
    term_min: int = 0

    @property
    def name(self) -> str:
        return self.settings.broker


def load_tree_broker(path: Path) -> TreePlan:
    """A broker's file; raises `ConfigurationError` naming file, key and remedy."""
    settings, channels = load_tree(path)
    return TreePlan(
        settings=settings,
        channels=channels,
        certificates=beside(path, settings.certificates),
        metrics_tls=metrics_tls(
            path, settings.metrics_host, settings.metrics_port, settings.metrics_tls
        ),
        journal=journal_plan(
            path, settings.journal, broker=settings.broker, lease_s=settings.lease_s
        ),
    )


class TreeDaemon:
    """Serves from `start` to `close`; the journal is closed in any case."""

    def __init__(self, plan: TreePlan) -> None:
        self._plan = plan
        self._parts = BrokerParts(plan)
        self.journal = self._parts.journal
        self.broker = QosBroker(
            machine_settings(plan),
            self._parts.outside,
            children=plan.settings.children,
            channels=plan.channels,
        )
        descriptors = take_descriptors(len(plan.settings.children))
        self._descriptors_max = descriptors.limit
        self._driver: Driver[Event] = Driver(
            self.broker,
            self._parts.credentials,
            journal=self.journal,
            environment=DriverEnvironment(table=descriptors.tables[0]),
        )
        self._metrics = MetricsServer(
            lambda: TreeCollector(self.figures()), health=self.journal.complaint
        )

    async def start(self) -> Line:
        """Stand where the journal ends, then listen; the answer is where."""
        self.broker.restore(self.journal.load())
        settings = self._plan.settings
        host, port, children = settings.host, settings.port, self.broker.state.families.children
        serving = self._driver.serve(host, port, SERVED, children=children)
        address = await listening(serving, host, port)
        if settings.parent is not None:
            parent = Identity(Role.BROKER, settings.parent.name)
            self._driver.connect_to(parent, settings.parent.places())
        ready: Line = {"state": "ready", "broker": settings.broker, "address": list(address)}
        if settings.metrics_port is not None:
            metrics_host = settings.metrics_host or LOOPBACK
            place = await self._metrics.start(
                metrics_host, settings.metrics_port, tls=self._plan.metrics_tls
            )
            ready["metrics"] = list(place)
        return ready

    def figures(self) -> TreeFigures:
        """Everything that is counted, at this moment."""
        return TreeFigures(
            survey=self.broker.survey(),
            journal=dict(self.journal.figures()),
            sessions=self._driver.counters.as_facts(),
            listeners={
                "commands": self._driver.counters.as_facts(),
                "metrics": self._metrics.counters.as_facts(),
            },
            descriptors_max=self._descriptors_max,
        )

    def reload(self) -> str:
        return self._parts.reloaded(self._metrics, "children and channels")

    async def close(self) -> None:
        await self._driver.close()
        await self._metrics.close()
        self.journal.close()


def machine_settings(plan: TreePlan) -> MachineSettings:
    """Return the machine's settings from those of the file."""
    parent, bands = plan.settings.parent, plan.settings.bands
    raise_after_ns = round(bands.raise_after_s * NS_PER_S)
    return MachineSettings(
        name=plan.name,
        parent="" if parent is None else parent.name,
        term_min=plan.term_min,
        capacity_share_max=plan.settings.quota.capacity_share_max,
        policy=BandPolicy(bands.policy),
        raise_after_ns=raise_after_ns,
        raise_after_ns_max=HOLD_GROWTH_MAX * raise_after_ns,
        keys=plan.settings.keys.settings(),
    )


def run_tree_broker(
    plan: TreePlan, *, on_ready: Callable[[Line], None], on_message: Callable[[str], None]
) -> None:
    """The whole life of a broker process, its log and event loop included."""
    settings = plan.settings
    set_up_logging(level=settings.log.level, is_json=settings.log.json_lines)
    forbid_core_dumps()
    callbacks = ServiceCallbacks(
        plan.name, f"managing {len(settings.children)} brokers", on_ready, on_message
    )
    asyncio.run(serve_until_stopped(lambda: TreeDaemon(plan), callbacks))
