"""Intake of a broker's table changes: in order, without a gap, whole tables only when complete.

The held orders are those that the router has accepted; the core follows a few milliseconds later,
and only then is a change acknowledged, with the digest of the table after it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from gridstat.model.errors import LimitReached, Malformed
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import ChangeTable, TableChanged, TableRefused
from gridstat.router.agent_events import ApplyTable, TableFailed

ORDERS_MAX: Final = 2_000_000
"""Orders of all kinds in one table; more than any core has rows for."""
_DIGEST_BITS: Final = 2**64 - 1


@dataclass(frozen=True, slots=True)
class _Unacknowledged:
    """A change that the core has not confirmed, by its number in the process and the session."""

    number: int
    session_number: int
    digest: int


class TableIntake:
    """Accepted orders (`held`); a change is applied once, and only after the one before."""

    def __init__(self, *, orders_max: int = ORDERS_MAX) -> None:
        self.held = OrderTable()
        self._orders_max = orders_max
        self._number = 0
        self._session_number = 0
        self._staged: OrderTable | None = None
        self._is_refusing = False
        self._is_in_doubt = False
        self._is_short = False
        """True if the core cannot hold some of the rows."""
        self._unacknowledged: deque[_Unacknowledged] = deque()

    @property
    def reported_digest(self) -> int:
        """Digest of the held orders; a digest that no broker accepts while the core may differ."""
        differs = self._is_in_doubt or self._is_short
        return self.held.digest ^ _DIGEST_BITS if differs else self.held.digest

    def begin_session(self) -> None:
        """Start a session: numbers restart; an incomplete table and pending acknowledgements are
        dropped."""
        self._session_number = 0
        self._staged = None
        self._is_refusing = False
        self._unacknowledged.clear()

    def take(self, change: ChangeTable) -> ApplyTable | TableRefused | None:
        """Return the instruction for a change; None while it is part of an incomplete table."""
        complaint = self._number_complaint(change)
        if complaint:
            return self._refuse(change.number, Malformed.code, complaint)
        if self._is_refusing and not change.begins_anew:
            return None  # The broker sent this before it received the refusal.
        self._session_number = change.number
        if change.begins_anew:
            self._is_refusing = False
            self._staged = OrderTable()
        return self._apply(change) if self._staged is None else self._stage(self._staged, change)

    def is_newest(self, number: int) -> bool:
        """Return whether the core has committed the held orders, if it has committed this one."""
        return number == self._number

    def applied(self, number: int, refused: dict[int, str] | None = None) -> TableChanged | None:
        """Note that the core has committed; return the acknowledgement, if this session waits for
        one."""
        self._is_short = bool(refused)
        last: _Unacknowledged | None = None
        while self._unacknowledged and self._unacknowledged[0].number <= number:
            last = self._unacknowledged.popleft()
        if last is None:
            return None
        return TableChanged(number=last.session_number, digest=last.digest, refused=refused or {})

    def failed(self, failure: TableFailed) -> TableRefused | None:
        """Note that the core failed; only a whole table restores a known state."""
        self._is_in_doubt = True
        for waiting in self._unacknowledged:
            if waiting.number >= failure.number:
                return self._refuse(waiting.session_number, failure.code, failure.reason)
        if self._session_number and not self._is_refusing:
            # Without a refusal the broker would not know until the next change.
            return self._refuse(self._session_number, failure.code, failure.reason)
        return None

    def _number_complaint(self, change: ChangeTable) -> str:
        if self._is_refusing:
            return ""
        wanted = self._session_number + 1
        if change.number < wanted:
            return f"change {change.number} repeats one of the {self._session_number} before it"
        # A whole table needs none of the changes that were missed.
        if change.number > wanted and not change.begins_anew:
            return f"change {change.number} came where {wanted} was next"
        return ""

    def _stage(self, staged: OrderTable, piece: ChangeTable) -> ApplyTable | TableRefused | None:
        staged.apply(piece)
        if len(staged) > self._orders_max:
            reason = f"the table has more than {self._orders_max} orders"
            return self._refuse(piece.number, LimitReached.code, reason)
        if not piece.is_last:
            return None
        self._staged = None
        self.held = staged
        self._is_in_doubt = False
        return self._numbered(whole_change(staged, term=piece.term, number=piece.number))

    def _apply(self, change: ChangeTable) -> ApplyTable | TableRefused:
        self.held.apply(change)
        if len(self.held) > self._orders_max:
            self._is_in_doubt = True
            reason = f"the table would have more than {self._orders_max} orders"
            return self._refuse(change.number, LimitReached.code, reason)
        return self._numbered(change)

    def _numbered(self, change: ChangeTable) -> ApplyTable:
        self._number += 1
        self._unacknowledged.append(
            _Unacknowledged(self._number, change.number, self.held.digest),
        )
        return ApplyTable(self._number, change)

    def _refuse(self, session_number: int, code: int, reason: str) -> TableRefused:
        self._is_refusing = True
        self._staged = None
        self._unacknowledged.clear()
        return TableRefused(number=session_number, code=code, reason=reason)


def whole_change(table: OrderTable, *, term: int, number: int) -> ChangeTable:
    """Return a table in one piece, however large: for this process only, never for a session."""
    return ChangeTable(
        term=term,
        number=number,
        begins_anew=True,
        channels=tuple(table.channels.values()),
        sources=tuple(table.sources.values()),
        variables=tuple(table.variables.values()),
        paths=tuple(table.paths.values()),
    )
