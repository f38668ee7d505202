"""Context that all parts of a leaf broker share: its state, and its unit of work.

The registry shows a decision at once; routers and end-points learn of it once it is durable
(`unit_of_work.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from secrets import token_bytes
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from gridstat.broker.permissions import Permissions
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import Operation, RouterReported
from gridstat.broker.requests.identity_quotas import IdentityQuotas
from gridstat.broker.tables.detection import Detection
from gridstat.broker.unit_of_work import UnitOfWork, ignore_failure, no_op
from gridstat.net.command.machine import Send

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.effects.effects import Effects
    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.leaf_capability import LeafCapabilities
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.settings import BrokerSettings
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.net.command.endpoint_signatures import Verifier
    from gridstat.net.command.machine import Instruction
    from gridstat.net.command.messages import Message

FLUSH_TIMER: Final = "flush"
CONFIRM_TIMER: Final = "confirm"
REPORTS_TIMER: Final = "reports"


def random_identity() -> str:
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class Outside:
    """Services from outside a pure broker: signatures, the wall clock, figures of the journal.

    `new_identity` returns a unique name for a new journal. `random_bytes` is the source of seeds
    and of channel identifiers, which nobody may foresee.
    """

    verifier: Verifier
    wall_clock_ns: Callable[[], int]
    journal_figures: Callable[[], dict[str, int | float]] = dict
    new_identity: Callable[[], str] = random_identity
    random_bytes: Callable[[int], bytes] = token_bytes


class BrokerContext(UnitOfWork[Operation]):
    """Unit of work of a leaf broker, with the state that its parts read and change."""

    def __init__(
        self,
        settings: BrokerSettings,
        outside: Outside,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        effects: Effects,
        capabilities: LeafCapabilities,
    ) -> None:
        super().__init__(effects)
        self.settings = settings
        self.outside = outside
        self.registry = registry
        self.reservations = reservations
        self.tables = tables
        self.effects = effects
        self.capabilities = capabilities
        self.permissions = Permissions(settings.cloud, outside.wall_clock_ns)
        self.detection = Detection(registry, settings.probes)
        self.quotas = IdentityQuotas(settings, reservations.shares, self.permissions)
        self.unsaved_reports: dict[str, RouterReported] = {}
        self._is_flush_set = False
        self._is_confirm_set = False
        self._order_last = 0

    def send_router(self, router: str, message: Message) -> None:
        self.out.append(Send(f"router/{router}", message))

    def new_channel_id(self) -> int:
        """Return a random identifier for a new channel of this cloud."""
        return self.registry.new_channel_id(self.outside.random_bytes)

    def next_order(self) -> tuple[int, int]:
        """Return the order of a notice or answer about a contract: the term and a number within it.

        The order is taken when the contract is read, so that a higher order has a newer contract.
        """
        self._order_last += 1
        return self.registry.term, self._order_last

    # Reports of routers.

    def take_report(self, report: RouterReported) -> None:
        """Apply a router's report, which is a fact and cannot fail, and journal it when possible.

        A report that could not be written goes with the next write, or is tried again by a timer.
        """
        applied = Applied()
        self.effects.apply(report, applied)
        for step in applied.tables:
            step()
        self.unsaved_reports[report.name] = report
        self.save_reports()

    def save_reports(self) -> None:
        if self.unsaved_reports:
            self._write(Applied(), (), no_op, ignore_failure)

    def persist_failed(self, token: int, reason: str) -> None:
        super().persist_failed(token, reason)
        if self.unsaved_reports:
            self.set_timer(REPORTS_TIMER, self.settings.retry_after_ns)

    def _write(
        self,
        applied: Applied,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        reports = tuple(self.unsaved_reports.values())
        self.unsaved_reports.clear()
        if reports:
            applied.undo.append(partial(self._keep_unsaved, reports))
        super()._write(applied, (*reports, *operations), then, failed)

    def _keep_unsaved(self, reports: tuple[RouterReported, ...]) -> None:
        """Keep reports whose write failed, unless a newer report of the router is kept."""
        for report in reports:
            self.unsaved_reports.setdefault(report.name, report)

    # End of a turn and timers.

    def end_turn(self) -> list[Instruction]:
        if self.tables.has_changes and not self._is_flush_set:
            self._is_flush_set = True
            self.set_timer(FLUSH_TIMER, self.settings.flush_after_ns)
        if self.tables.is_waiting and not self._is_confirm_set:
            self._is_confirm_set = True
            self.set_timer(CONFIRM_TIMER, self.settings.confirm_within_ns)
        return super().end_turn()

    def flush(self) -> None:
        """Send the routers the changes of their tables."""
        self._is_flush_set = False
        for router, change in self.tables.flush(term=self.registry.term):
            self.send_router(router, change)

    def expire_confirmations(self) -> None:
        """End the waits for routers that did not confirm in time."""
        again_ns = self.tables.expire(self.now_ns)
        self._is_confirm_set = again_ns is not None
        if again_ns is not None:
            self.set_timer(CONFIRM_TIMER, again_ns - self.now_ns)
