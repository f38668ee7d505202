"""A broker's turn: what it says now, and what it writes before anybody hears of it.

Every broker, of a cloud or above clouds, decides, shows the decision to itself at once, and tells
others only when it is durable. Operations are durable in the order of decisions, so a later one may
rest on an earlier one that is still on its way; if one fails, all after it fail with it.
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
    """What operations change; `unwritten` is what this turn shows and has not written yet."""

    unwritten: list[Applied]

    def apply(self, operation: TakenT_contra, done: Applied) -> None: ...


@dataclass(slots=True)
class _Pending:
    """Operations on their way to the disk, and what follows either way."""

    applied: Applied
    operation_count: int
    then: Callable[[Applied], None]
    failed: Callable[[str], None]


class UnitOfWork(Generic[OperationT]):
    """`out` holds the instructions of the present turn; pending operations stand in token order."""

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

    # Saying things.

    def send(self, peer: str, message: Message) -> None:
        self.out.append(Send(peer, message))

    def close(self, peer: str, error: GridStatError) -> None:
        self.out.append(Close(peer, error.code, str(error.args[0])))

    def set_timer(self, name: str, after_ns: int) -> None:
        self.out.append(SetTimer(name, max(0, after_ns)))

    def cancel_timer(self, name: str) -> None:
        self.out.append(CancelTimer(name))

    def note(self, word: str, **facts: str | int | float) -> None:
        self.out.append(Note(word, tuple(facts.items())))

    def warn(self, word: str, **facts: str | int | float) -> None:
        """Note something that an operator should look at."""
        self.out.append(Note(word, tuple(facts.items()), is_warning=True))

    # Making decisions durable.

    def commit(
        self,
        operations: Sequence[OperationT],
        then: Callable[[Applied], None],
        failed: Callable[[str], None],
    ) -> None:
        """Show the operations at once; change tables and run `then` when they are durable.

        If they cannot be, everything is as before and `failed` is told why.
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
        """Like `commit`, for operations that were applied one by one while deciding."""
        self._write(applied, operations, then, failed)

    def abandon(self) -> None:
        """Undo what was decided in this turn and will not be written, newest first."""
        for applied in reversed(self._state.unwritten):
            applied.roll_back()
        self._state.unwritten.clear()

    def restored(self, operation_count: int) -> None:
        """So many operations were read before the start; some may be of a snapshot."""
        self._since_snapshot += operation_count
        self._is_size_known = self._is_size_known and not operation_count

    @property
    def has_journal(self) -> bool:
        """Whether anything was ever written."""
        return self._since_snapshot > 0 or self._snapshot_size > 0

    def compact_if_due(
        self, snapshot_after: int, snapshot: Callable[[], Iterable[OperationT]]
    ) -> None:
        """Let the journal begin anew with a snapshot, if the operations since the last are many.

        Where the last one ended is not written down. So after a start it counts as one of today:
        else each start of a large broker would write a snapshot before anything else.
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
        self._persist(_Pending(Applied(), 0, nothing, nobody), encoded)

    def _is_compaction_due(self, snapshot_after: int) -> bool:
        """A snapshot twice the size of the last is worth as much as the operations since."""
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
        """Undo this and all that was decided after it, newest first; then tell who asked."""
        if token not in self._pending:
            return  # Undone already, together with an earlier one.
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

    # The ends of a turn.

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
        self._state.unwritten.clear()  # Not before: what cannot be encoded is to be undone.
        self._persist(_Pending(applied, len(encoded), then, failed), encoded)

    def _persist(self, pending: _Pending, encoded: tuple[bytes, ...]) -> None:
        self._number += 1
        token = self._epoch << EPOCH_BITS | self._number
        self._pending[token] = pending
        self.out.append(Persist(token, encoded))


def nothing(_: Applied) -> None:
    """A snapshot changes nothing."""


def nobody(_: str) -> None:
    """Nobody asked for a snapshot; the next one will be tried in time."""
