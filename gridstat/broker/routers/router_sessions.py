"""Sessions of the routers with their broker: reports and table synchronisation (S0 A1, A20, A21).

States of a router: without a session; connected, but without a report in this session; in session,
after its report. Only a router in session receives changes of its table.

Messages from a router: `ReportRouter` once in each session, with its addresses, its highest term
and the digest of its table; `TableChanged` confirms changes; `TableRefused` refuses a table;
`ReportCounters`. Messages to a router: `RouterAccepted` answers a report, then `ChangeTable`.

Timeout: a table that was refused is sent again at once, and after further refusals with a delay
that doubles each time. Restart of the router: its report has a new instance, and its digest shows
that it needs the whole table. Restart of the broker: it has a higher term; routers report again. A
router that has seen a higher term than the broker's refuses its orders, and the broker logs that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operations import RouterReported
from gridstat.broker.routers.receiver_addresses import check_host, check_ports, check_versions
from gridstat.model.errors import LayoutError, NoSuchRouter
from gridstat.net.command.router_messages import RouterAccepted

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.net.command.router_messages import (
        ReportCounters,
        ReportRouter,
        TableChanged,
        TableRefused,
    )
    from gridstat.net.command.session_messages import Hello

WHOLE_TIMER: Final = "whole/"
REFUSALS_AT_ONCE: Final = 1
"""Number of refusals that are answered at once; later ones with a growing delay."""
RETRY_DOUBLINGS_MAX: Final = 5
REASON_MAX: Final = 200
NEWER_TERM_HINT: Final = (
    "if no other broker is alive and this journal is all there is, start with "
    "--begin-at-term and a number above this term"
)


class RouterSessions:
    """Sessions of all routers; a router that has reported receives every change of its table."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._instances: dict[str, str] = {}
        self.counters: dict[str, ReportCounters] = {}
        self.terms: dict[str, int] = {}
        """Highest term that each router had seen when it reported."""

    def connect(self, name: str, hello: Hello) -> None:
        if name not in self._context.registry.routers:
            self._reject(name)
            return
        self._instances[name] = hello.instance
        self._context.capabilities.router_connected(name, hello)

    def disconnect(self, name: str) -> None:
        self._instances.pop(name, None)
        table = self._context.tables[name]
        was_connected = table.is_connected
        table.end_session()
        if was_connected:
            self._context.capabilities.router_lost(name)

    def take_report(self, name: str, message: ReportRouter) -> None:
        """Begin the session of a router; the other capabilities react to an accepted report."""
        is_new = self._report(name, message)
        if is_new is not None:
            self._context.capabilities.router_reported(name, message, is_new=is_new)

    def keep_counters(self, name: str, message: ReportCounters) -> None:
        self.counters[name] = message

    def _report(self, name: str, message: ReportRouter) -> bool | None:
        """Accept a router's report and synchronise its table.

        Return whether its process is new since the last report, or None if the report is ignored.
        """
        context = self._context
        if name not in self._instances or context.tables[name].is_connected:
            return None  # Not in this cloud, or it has reported in this session already.
        if name not in context.registry.routers:
            self._reject(name)  # Removed since it connected; it retries in case that is undone.
            return None
        try:
            _check(name, message)
        except LayoutError as error:
            # Its neighbours could not follow an order with such an address.
            context.close(f"router/{name}", error)
            return None
        self.terms[name] = message.term
        if message.term > context.registry.term:
            # The router follows a newer broker and refuses this one; an operator has to decide.
            context.note("newer_term", router=name, term=message.term, hint=NEWER_TERM_HINT)
        before = context.registry.reports.get(name)
        report = RouterReported(
            name=name,
            instance=self._instances[name],
            host=message.host,
            data_port=message.data_port,
            urgent_port=message.urgent_port,
            command_host=message.command_host,
            command_port=message.command_port,
            datagram_versions=tuple(sorted(message.datagram_versions)),
            counts_data_as_life=message.counts_data_as_life,
            takes_probe_interval=message.takes_probe_interval,
            endpoint_security=message.endpoint_security,
            takes_delay=message.takes_delay,
        )
        is_new = message.is_first_time or before is None or before.instance != report.instance
        if report != before:
            context.take_report(report)
        table = context.tables[name]
        is_in_step = message.digest == table.wanted.digest
        context.send_router(
            name, RouterAccepted(term=context.registry.term, do_first_time=not is_in_step)
        )
        for change in table.begin_session(term=context.registry.term, digest=message.digest):
            context.send_router(name, change)
        context.note(
            "router_reported",
            router=name,
            is_new=int(is_new),
            in_step=int(is_in_step),
            term=message.term,
        )
        return is_new

    def take_confirmation(self, name: str, message: TableChanged) -> set[int]:
        """Handle a confirmation; return the variables whose rows are or were refused."""
        table = self._context.tables[name]
        if not table.is_connected:
            return set()
        before = table.refused
        if not self._context.tables.confirm(name, message.number, message.digest, message.refused):
            self._context.note("table_differs", router=name, number=message.number)
            self._send_whole(name)
        if before != table.refused:
            self._context.note("rows_refused", router=name, count=len(table.refused))
        return before.keys() | table.refused.keys()

    def take_refusal(self, name: str, message: TableRefused) -> bool:
        """Handle a refused table; return whether the router has just become unusable by it."""
        table = self._context.tables[name]
        if not table.is_connected:
            return False
        was_refusing = table.is_refusing
        table.refuse(message.reason[:REASON_MAX])
        self._context.note("table_refused", router=name, code=message.code, reason=table.refusal)
        if table.refusal_count <= REFUSALS_AT_ONCE:
            self._send_whole(name)
            return False
        doublings = min(table.refusal_count, RETRY_DOUBLINGS_MAX)
        self._context.set_timer(
            WHOLE_TIMER + name, self._context.settings.retry_after_ns << doublings
        )
        return table.is_refusing and not was_refusing

    def send_whole_again(self, name: str) -> None:
        if name in self._context.registry.routers and self._context.tables[name].is_connected:
            self._send_whole(name)

    def _reject(self, name: str) -> None:
        error = NoSuchRouter(f"cloud {self._context.registry.cloud} has no router {name}")
        self._context.close(f"router/{name}", error)

    def _send_whole(self, name: str) -> None:
        for change in self._context.tables.whole(name, term=self._context.registry.term):
            self._context.send_router(name, change)


def _check(name: str, message: ReportRouter) -> None:
    check_host(message.host, of=name)
    check_ports((message.data_port, message.urgent_port, message.command_port), of=name)
    check_versions(message.datagram_versions, of=name)
