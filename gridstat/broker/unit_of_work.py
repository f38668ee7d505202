"""Unit of work of a broker: the instructions of one event, and the operations that it writes.

A turn handles one event: `begin_turn`, decisions, `end_turn`, which returns the instructions.
A decision applies its operations to the broker's own state at once, and is written by `commit`.
Each commit has one of three ends:

- `Persisted(token)`: the journal holds the operations. The routers' tables change, and `then` runs,
  which sends messages. Nobody else learns of a decision before.
- `PersistFailed(token)`: the journal is full or broken. This commit and all later ones are undone,
  newest first, because a later decision may depend on an earlier one. Then each `failed` runs.
- A restart: what the journal holds is replayed, and the rest never happened.

Tokens carry an epoch, which grows with every failure, so that the journal drops what was submitted
before the failure and arrives after it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

import msgspec

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import SNAPSHOT_MARK
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

    from gridstat.model.errors import GridStatError
    from gridstat.net.command.machine import Instruction
    from gridstat.net.command.messages import Message

EPOCH_BITS: Final = 32
_ENCODER: Final = msgspec.msgpack.Encoder()

OperationT = TypeVar("OperationT", bound=msgspec.Struct)
TakenT_contra = TypeVar("TakenT_contra", bound=msgspec.Struct, contravariant=True)


class DurableState(Protocol[TakenT_contra]):
    """State that operations change; `unwritten` is applied in this turn and not yet submitted."""

    unwritten: list[Applied]

    def apply(self, operation: TakenT_contra, done: Applied) -> None: ...


@dataclass(slots=True)
class _Pending:
    """Operations submitted to the journal, and the callbacks for success and failure."""

    applied: Applied
    operation_count: int
    then: Callable[[Applied], None]
    failed: Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Settled:
    """Function that runs when a write has ended, well or not."""

    then: Callable[[], None]

    def written(self, _: Applied) -> None:
        self.then()

    def failed(self, _: str) -> None:
        self.then()


class UnitOfWork(Generic[OperationT]):
    """`out` holds the instructions of the present turn; `_pending` is in token order."""

    def __init__(self, state: DurableState[OperationT]) -> None:
        self._state = state
        self.now_ns = 0
        self.out: list[Instruction] = []
        self._since_snapshot = 0
        self._snapshot_size = 0
        self._is_size_known = True
        self._epoch = 0
        self._number = 0
        self._pending: dict[int, _Pending] = {}

    # Instructions.

    def send(self, peer: str, message: Message) -> None:
        self.out.append(Send(peer, message))

    def close(self, peer: str, error: GridStatError) -> None:
        self.out.append(Close(peer, error.code, str(error.args[0])))

    def set_timer(self, name: str, after_ns: int) -> None:
        self.out.append(SetTimer(name, max(0, after_ns)))

    def cancel_timer(self, name: str) -> None:
        self.out.append(CancelTimer(name))

    def note(self, event: str, **facts: str | int | float) -> None:
        self.out.append(Note(event, tuple(facts.items())))

    def warn(self, event: str, **facts: str | int | float) -> None:
        """Log something that an operator should look at."""
        self.out.append(Note(event, tuple(facts.items()), is_warning=True))

    # Making decisions durable.

    def commit(
        self,
        operations: Sequence[OperationT],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        """Apply operations and write them; once they are durable, change tables and run `then`.

        If the write fails, all changes are undone and `failed` runs with the reason.
        """
        applied = Applied()
        for operation in operations:
            self._state.apply(operation, applied)
        self._write(applied, operations, then, failed)

    def commit_applied(
        self,
        applied: Applied,
        operations: Sequence[OperationT],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        """Write operations that were applied to `applied` one by one while deciding."""
        self._write(applied, operations, then, failed)

    def when_settled(self, then: Callable[[], None]) -> None:
        """Run `then` once every pending operation is durable, or is undone."""
        if not self._pending:
            then()
            return
        settled = _Settled(then)
        self.commit((), settled.written, settled.failed)

    def abandon(self) -> None:
        """Undo the decisions of this turn that were not submitted, newest first."""
        for applied in reversed(self._state.unwritten):
            applied.roll_back()
        self._state.unwritten.clear()

    def restored(self, operation_count: int) -> None:
        """Count operations that were read before the start; some may belong to a snapshot."""
        self._since_snapshot += operation_count
        self._is_size_known = self._is_size_known and not operation_count

    @property
    def has_journal(self) -> bool:
        """Return whether anything was ever written."""
        return self._since_snapshot > 0 or self._snapshot_size > 0

    def compact_if_due(
        self, snapshot_after: int, snapshot: Callable[[], Iterable[OperationT]]
    ) -> None:
        """Write a snapshot if there are many operations since the last one.

        The journal does not say how many of its operations belong to the last snapshot. After a
        start they are taken to be as many as a snapshot has now: otherwise each start of a large
        broker would write a snapshot first.
        """
        if not self._is_compaction_due(snapshot_after):
            return
        if not self._is_size_known:
            self._is_size_known = True
            self._snapshot_size = min(sum(1 for _ in snapshot()), self._since_snapshot)
            self._since_snapshot -= self._snapshot_size
            if not self._is_compaction_due(snapshot_after):
                return
        self._compact(snapshot())

    def _compact(self, operations: Iterable[OperationT]) -> None:
        self._since_snapshot = 0
        encoded = (SNAPSHOT_MARK, *(_ENCODER.encode(operation) for operation in operations))
        self._snapshot_size = len(encoded)
        self._is_size_known = True
        self._persist(_Pending(Applied(), 0, no_op, ignore_failure), encoded)

    def _is_compaction_due(self, snapshot_after: int) -> bool:
        """Return whether the operations since the last snapshot exceed twice its size."""
        return self._since_snapshot > max(snapshot_after, 2 * self._snapshot_size)

    def persisted(self, token: int) -> None:
        pending = self._pending.pop(token, None)
        if pending is None:
            # A journal that writes on after a failure would break the order of operations.
            self.note("journal_out_of_order", token=token)
            return
        self._since_snapshot += pending.operation_count
        for step in pending.applied.tables:
            step()
        pending.then(pending.applied)

    def persist_failed(self, token: int, reason: str) -> None:
        """Undo this commit and all later ones, newest first; then run their `failed` callbacks."""
        if token not in self._pending:
            return  # It was undone together with an earlier one.
        self._epoch += 1
        self._number = 0
        failed = [(number, found) for number, found in self._pending.items() if number >= token]
        for number, found in reversed(failed):
            del self._pending[number]
            found.applied.roll_back()
        self.note("storage_failed", reason=reason, requests=len(failed))
        for _, found in failed:
            found.failed(reason)

    @property
    def pending_count(self) -> int:
        return len(self._pending)

    # Begin and end of a turn.

    def begin_turn(self, now_ns: int) -> None:
        self.now_ns = now_ns
        self._state.unwritten.clear()
        self.out = []

    def end_turn(self) -> list[Instruction]:
        return self.out

    def _write(
        self,
        applied: Applied,
        operations: Sequence[OperationT],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        encoded = tuple([_ENCODER.encode(operation) for operation in operations])
        self._state.unwritten.clear()  # Only now: `abandon` undoes what could not be encoded.
        self._persist(_Pending(applied, len(encoded), then, failed), encoded)

    def _persist(self, pending: _Pending, encoded: tuple[bytes, ...]) -> None:
        self._number += 1
        token = self._epoch << EPOCH_BITS | self._number
        self._pending[token] = pending
        self.out.append(Persist(token, encoded))


def no_op(_: Applied) -> None:
    """Do nothing once operations are durable."""


def ignore_failure(_: str) -> None:
    """Ignore a failed write, which a later turn repeats."""
