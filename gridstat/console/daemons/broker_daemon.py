"""One leaf broker as a process: the pure machine, its journal, its listeners and its figures."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from gridstat.broker.leaf_broker import LeafBroker
from gridstat.broker.requests.queries import NameService
from gridstat.broker.settings import (
    HOLD_GROWTH_MAX,
    NS_PER_MS,
    AccessSettings,
    BandSettings,
    BrokerSettings,
    Quotas,
)
from gridstat.console.config.cloud_file import load_cloud
from gridstat.console.config.metrics_tls import LOOPBACK, metrics_tls
from gridstat.console.config.toml_file import beside
from gridstat.console.daemons.broker_metrics import BrokerCollector, BrokerFigures
from gridstat.console.daemons.broker_parts import BrokerParts, listening
from gridstat.console.daemons.broker_service import Line, ServiceCallbacks, serve_until_stopped
from gridstat.console.daemons.descriptors import take_descriptors
from gridstat.console.daemons.logs import set_up_logging
from gridstat.console.daemons.metrics_server import MetricsServer
from gridstat.console.daemons.stand_by import JournalPlan, journal_plan
from gridstat.model.band_law import BandPolicy
from gridstat.model.probe_law import ProbeSettings
from gridstat.net.command.driver import Driver, DriverEnvironment
from gridstat.net.command.identity import Identity, Role
from gridstat.net.core_dumps import forbid_core_dumps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gridstat.console.config.cloud_file import CloudSettings, Topology
    from gridstat.console.config.metrics_tls import MetricsTls
    from gridstat.net.command.machine import Event

NS_PER_S: Final = 1_000_000_000
SERVED: Final = (Role.ROUTER, Role.OPERATOR)
NAMES_SERVED: Final = (Role.ROUTER, Role.ENDPOINT, Role.OPERATOR)


@dataclass(frozen=True, slots=True)
class BrokerPlan:
    """A broker as its file describes it."""

    settings: CloudSettings
    topology: Topology
    certificates: Path
    journal: JournalPlan
    metrics_tls: MetricsTls | None = None
    term_min: int = 0

    @property
    def name(self) -> str:
        return self.settings.cloud


def load_broker(path: Path) -> BrokerPlan:
    """A broker's file; raises `ConfigurationError` naming file, key and remedy."""
    settings, topology = load_cloud(path)
    return BrokerPlan(
        settings=settings,
        topology=topology,
        certificates=beside(path, settings.certificates),
        metrics_tls=metrics_tls(
            path, settings.metrics_host, settings.metrics_port, settings.metrics_tls
        ),
        journal=journal_plan(
            path, settings.journal, broker=settings.cloud, lease_s=settings.timing.lease_s
        ),
    )


class BrokerDaemon:
    """Serves from `start` to `close`; the journal is closed in any case."""

    def __init__(self, plan: BrokerPlan) -> None:
        self._plan = plan
        self._parts = BrokerParts(plan)
        self.journal = self._parts.journal
        self.broker = LeafBroker(
            replace(
                broker_settings(plan.settings),
                term_min=plan.term_min,
                access=access_settings(plan.topology),
            ),
            self._parts.outside,
            routers=plan.topology.routers,
            channels=plan.topology.channels,
        )
        self._names = NameService(self.broker.registry)
        descriptors = take_descriptors(len(plan.topology.routers), len(plan.topology.routers))
        self._descriptors_max = descriptors.limit
        self._driver: Driver[Event] = Driver(
            self.broker,
            self._parts.credentials,
            journal=self.journal,
            environment=DriverEnvironment(table=descriptors.tables[0]),
        )
        self._names_driver: Driver[Event] = Driver(
            self._names,
            self._parts.credentials,
            environment=DriverEnvironment(table=descriptors.tables[1]),
        )
        self._metrics = MetricsServer(
            lambda: BrokerCollector(self.figures()), health=self.journal.complaint
        )

    async def start(self) -> Line:
        """Stand where the journal ends, then listen; the answer is where."""
        self.broker.restore(self.journal.load())
        settings = self._plan.settings
        host, port, names_port = settings.host, settings.port, settings.name_service_port
        address = await listening(self._driver.serve(host, port, SERVED), host, port)
        naming = self._names_driver.serve(host, names_port, NAMES_SERVED)
        names = await listening(naming, host, names_port, key="name_service_port")
        self._names.listen_at(*address)
        if settings.parent is not None:
            parent = Identity(Role.BROKER, settings.parent.name)
            self._driver.connect_to(parent, settings.parent.places())
        ready: Line = {
            "state": "ready",
            "broker": settings.cloud,
            "address": list(address),
            "name_service": list(names),
        }
        if settings.metrics_port is not None:
            metrics_host = settings.metrics_host or LOOPBACK
            place = await self._metrics.start(
                metrics_host, settings.metrics_port, tls=self._plan.metrics_tls
            )
            ready["metrics"] = list(place)
        return ready

    def figures(self) -> BrokerFigures:
        """Everything that is counted, at this moment."""
        return BrokerFigures(
            survey=self.broker.survey(),
            ledgers=self.broker.ledgers(),
            journal=dict(self.journal.figures()),
            sessions=self._driver.counters.as_facts(),
            listeners={
                "commands": self._driver.counters.as_facts(),
                "names": self._names_driver.counters.as_facts(),
                "metrics": self._metrics.counters.as_facts(),
            },
            descriptors_max=self._descriptors_max,
        )

    def reload(self) -> str:
        return self._parts.reloaded(self._metrics, "routers and channels")

    async def close(self) -> None:
        await self._names_driver.close()
        await self._driver.close()
        await self._metrics.close()
        self.journal.close()


def broker_settings(settings: CloudSettings) -> BrokerSettings:
    """The file's figures in the machine's units."""
    timing, quota, bands = settings.timing, settings.quota, settings.bands
    raise_after_ns = round(bands.raise_after_s * NS_PER_S)
    return BrokerSettings(
        cloud=settings.cloud,
        parent="" if settings.parent is None else settings.parent.name,
        grace_ns=round(timing.grace_s * NS_PER_S),
        change_lead_ns=timing.change_lead_ms * NS_PER_MS,
        quarantine_ns=round(timing.quarantine_s * NS_PER_S),
        quotas=Quotas(
            publications_max=quota.publications_max,
            subscriptions_max=quota.subscriptions_max,
            edges_max=quota.sessions_max,
            capacity_share=quota.capacity_share,
            commands_per_s=quota.commands_per_s,
            patterns_max=quota.patterns_max,
        ),
        probes=ProbeSettings(timing.probe_interval_ms, timing.silent_ms_max),
        keys=settings.keys.settings(),
        bands=BandSettings(
            policy=BandPolicy(bands.policy),
            raise_after_ns=raise_after_ns,
            raise_after_ns_max=HOLD_GROWTH_MAX * raise_after_ns,
        ),
    )


def access_settings(topology: Topology) -> AccessSettings:
    """The file's access rules, and what it says about them."""
    is_enforced = None if topology.access is None else topology.access == "enforce"
    return AccessSettings(rules=topology.rules, is_enforced=is_enforced)


def run_broker(
    plan: BrokerPlan, *, on_ready: Callable[[Line], None], on_message: Callable[[str], None]
) -> None:
    """The whole life of a broker process, its log and event loop included."""
    settings = plan.settings
    set_up_logging(level=settings.log.level, is_json=settings.log.json_lines)
    forbid_core_dumps()
    callbacks = ServiceCallbacks(
        plan.name, f"managing cloud {settings.cloud}", on_ready, on_message
    )
    asyncio.run(serve_until_stopped(lambda: BrokerDaemon(plan), callbacks))
