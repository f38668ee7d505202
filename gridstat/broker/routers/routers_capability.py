"""Registration of the routers: their sessions, reports, tables and health."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Protocol

from gridstat.broker.context import CONFIRM_TIMER, FLUSH_TIMER, REPORTS_TIMER
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.operations import RouterReported
from gridstat.broker.records.snapshot import report_snapshot
from gridstat.broker.routers.router_health import ABSENT_TIMER
from gridstat.broker.routers.router_sessions import WHOLE_TIMER
from gridstat.net.command.router_messages import (
    ReportCounters,
    ReportRouter,
    TableChanged,
    TableRefused,
)

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.effects.cloud_effects import CloudEffects
    from gridstat.broker.routers.router_health import RouterHealth
    from gridstat.broker.routers.router_sessions import RouterSessions


class RouterFaultHandler(Protocol):
    """Moves contracts when a router confirms or refuses its table, stays away, or has restarted."""

    def table_changed(self, name: str, message: TableChanged) -> None: ...
    def table_refused(self, name: str, message: TableRefused) -> None: ...
    def router_is_absent(self, name: str) -> None: ...
    def clear_faults(self, name: str, report: ReportRouter, /, *, is_new: bool) -> None: ...


def routers_capability(
    context: BrokerContext,
    effects: CloudEffects,
    sessions: RouterSessions,
    health: RouterHealth,
    faults: RouterFaultHandler,
) -> LeafCapability:
    """Register the routers of the cloud.

    A report first clears the faults of the router's earlier process. Then its end-points are taken
    over, and only then contracts are planned anew: the recovery is a registration of its own,
    because it follows that of the end-points.
    """
    return LeafCapability(
        name="routers",
        operations={RouterReported: effects.router_reported},
        snapshot=partial(report_snapshot, context.registry),
        resume=health.resume,
        router_messages={
            ReportRouter: sessions.take_report,
            TableChanged: faults.table_changed,
            TableRefused: faults.table_refused,
            ReportCounters: sessions.keep_counters,
        },
        timers={
            FLUSH_TIMER: context.flush,
            CONFIRM_TIMER: context.expire_confirmations,
            REPORTS_TIMER: context.save_reports,
        },
        named_timers={
            WHOLE_TIMER: sessions.send_whole_again,
            ABSENT_TIMER: faults.router_is_absent,
        },
        router_reported=faults.clear_faults,
    )
