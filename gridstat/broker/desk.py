"""What all parts of a leaf broker share: its state, its journal's turn, and what it says now.

A decision is shown by the registry at once and written to the journal; routers and end-points hear
of it only when it is durable. Operations are durable in the order of decisions, so a later one may
rest on an earlier one that is still on its way; if one fails, all after it fail with it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.applied import Applied
from gridstat.broker.records.operations import SNAPSHOT_MARK, RouterReported, encode
from gridstat.net.command.machine import (
    CancelTimer,
    Close,
    Note,
    Persist,
    Send,
    SetTimer,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from gridstat.broker.effects.effects import Effects
    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.settings import BrokerSettings
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.authority import Verifier
    from gridstat.net.command.machine import Instruction
    from gridstat.net.command.messages import Message

EPOCH_BITS: Final = 32
FLUSH_TIMER: Final = "flush"
CONFIRM_TIMER: Final = "confirm"
REPORTS_TIMER: Final = "reports"


@dataclass(frozen=True, slots=True)
class Outside:
    """What a pure broker is given of the world: proofs, dates, and how the journal fares."""

    verifier: Verifier
    wall_clock_ns: Callable[[], int]
    journal_figures: Callable[[], dict[str, int | float]] = dict


@dataclass(slots=True)
class _Pending:
    """Operations on their way to the disk, and what follows either way."""

    applied: Applied
    operation_count: int
    then: Callable[[Applied], None]
    failed: Callable[[str], None]
    reports: tuple[RouterReported, ...] = ()


class Desk:
    """`out` holds the instructions of the present turn; pending operations stand in token order."""

    def __init__(
        self,
        settings: BrokerSettings,
        outside: Outside,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        effects: Effects,
    ) -> None:
        self.settings = settings
        self.outside = outside
        self.registry = registry
        self.reservations = reservations
        self.tables = tables
        self.effects = effects
        self.now_ns = 0
        self.out: list[Instruction] = []
        self.since_snapshot = 0
        self.snapshot_size = 0
        self.unsaved_reports: dict[str, RouterReported] = {}
        self._epoch = 0
        self._number = 0
        self._pending: dict[int, _Pending] = {}
        self._is_flush_set = False
        self._is_confirm_set = False

    # Saying things.

    def send(self, peer: str, message: Message) -> None:
        self.out.append(Send(peer, message))

    def send_router(self, router: str, message: Message) -> None:
        self.out.append(Send(f"router/{router}", message))

    def close(self, peer: str, error: GridStatError) -> None:
        self.out.append(Close(peer, error.code, str(error.args[0])))

    def set_timer(self, name: str, after_ns: int) -> None:
        self.out.append(SetTimer(name, max(0, after_ns)))

    def cancel_timer(self, name: str) -> None:
        self.out.append(CancelTimer(name))

    def note(self, word: str, **facts: str | int | float) -> None:
        self.out.append(Note(word, tuple(facts.items())))

    # Making decisions durable.

    def commit(
        self,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        """Show the operations at once; change tables and run `then` when they are durable.

        If they cannot be, everything is as before and `failed` is told why.
        """
        applied = Applied()
        for operation in operations:
            self.effects.apply(operation, applied)
        self._write(applied, operations, then, failed)

    def commit_applied(
        self,
        applied: Applied,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        """Like `commit`, for operations that were applied one by one while deciding."""
        self._write(applied, operations, then, failed)

    def abandon(self) -> None:
        """Undo what was decided in this turn and will not be written, newest first."""
        for applied in reversed(self.effects.unwritten):
            applied.roll_back()
        self.effects.unwritten.clear()

    def learn(self, report: RouterReported) -> None:
        """Where a router listens: a fact that holds at once, and is journalled when it can be.

        With whatever is written next, or on its own a little after the disk was full.
        """
        applied = Applied()
        self.effects.apply(report, applied)
        for step in applied.tables:
            step()
        self.unsaved_reports[report.name] = report
        self.save_reports()

    def save_reports(self) -> None:
        if self.unsaved_reports:
            self._write(Applied(), (), _nothing, _nobody)

    def compact(self, operations: Iterable[Operation]) -> None:
        """Let the journal begin anew with a snapshot."""
        self.since_snapshot = 0
        encoded = (SNAPSHOT_MARK, *(encode(operation) for operation in operations))
        self.snapshot_size = len(encoded)
        self._persist(_Pending(Applied(), 0, _nothing, _nobody), encoded)

    def persisted(self, token: int) -> None:
        pending = self._pending.pop(token, None)
        if pending is None:
            # A journal that writes on after a failure would break the order of operations.
            self.note("journal_out_of_order", token=token)
            return
        self.since_snapshot += pending.operation_count
        for step in pending.applied.tables:
            step()
        pending.then(pending.applied)

    def persist_failed(self, token: int, reason: str) -> None:
        """Undo this and all that was decided after it, newest first; then tell who asked."""
        if token not in self._pending:
            return  # Undone already, together with an earlier one.
        self._epoch += 1
        self._number = 0
        failed = [(number, found) for number, found in self._pending.items() if number >= token]
        for number, found in reversed(failed):
            del self._pending[number]
            found.applied.roll_back()
            for report in found.reports:
                self.unsaved_reports.setdefault(report.name, report)
        if self.unsaved_reports:
            self.set_timer(REPORTS_TIMER, self.settings.retry_after_ns)
        self.note("storage_failed", reason=reason, requests=len(failed))
        for _, found in failed:
            found.failed(reason)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    # The ends of a turn.

    def begin_turn(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self.effects.unwritten.clear()
        self.out = []

    def end_turn(self) -> list[Instruction]:
        if self.tables.has_changes and not self._is_flush_set:
            self._is_flush_set = True
            self.set_timer(FLUSH_TIMER, self.settings.flush_after_ns)
        if self.tables.is_waiting and not self._is_confirm_set:
            self._is_confirm_set = True
            self.set_timer(CONFIRM_TIMER, self.settings.confirm_within_ns)
        return self.out

    def flush(self) -> None:
        """Tell the routers what has changed for them."""
        self._is_flush_set = False
        for router, change in self.tables.flush(term=self.registry.term):
            self.send_router(router, change)

    def expire(self) -> None:
        """Give up on routers that did not confirm in time."""
        again_ns = self.tables.expire(self.now_ns)
        self._is_confirm_set = again_ns is not None
        if again_ns is not None:
            self.set_timer(CONFIRM_TIMER, again_ns - self.now_ns)

    def _write(
        self,
        applied: Applied,
        operations: Sequence[Operation],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        self.effects.unwritten.clear()
        reports = tuple(self.unsaved_reports.values())
        self.unsaved_reports.clear()
        encoded = tuple([encode(operation) for operation in (*reports, *operations)])
        self._persist(_Pending(applied, len(encoded), then, failed, reports), encoded)

    def _persist(self, pending: _Pending, encoded: tuple[bytes, ...]) -> None:
        self._number += 1
        token = self._epoch << EPOCH_BITS | self._number
        self._pending[token] = pending
        self.out.append(Persist(token, encoded))


def _nothing(_: Applied) -> None:
    """A snapshot changes nothing."""


def _nobody(_: str) -> None:
    """Nobody asked for a snapshot; the next one will be tried in time."""
