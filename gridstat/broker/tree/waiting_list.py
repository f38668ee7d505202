"""Contracts that are to be planned anew, each in its time.

Every attempt costs a look-up and rounds of reservations, whose loads make children tell new hints.
So an attempt that has failed is repeated more and more seldom, and only so many are open at a time;
but it is repeated, for room may become free where nobody tells of it. What is really new is tried
at once.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.tree.desk import TreeDesk

REPLAN_TIMER: Final = "replan"
RAISE_TIMER: Final = "raise"
DOUBLINGS_MAX: Final = 5


class WaitingList:
    """`take` is called when the timer has fired."""

    def __init__(self, desk: TreeDesk, timer: str) -> None:
        self._desk = desk
        self._timer = timer
        self._due_ns: dict[str, int] = {}
        self._attempts: dict[str, int] = {}
        self._not_before_ns: dict[str, int] = {}
        self._timer_ns: int | None = None
        self._is_crowded = False

    def __len__(self) -> int:
        return len(self._due_ns)

    def __iter__(self) -> Iterator[str]:
        return iter(self._due_ns)

    def add(self, contracts: Iterable[str], *, is_new: bool) -> None:
        """Without anything really new not before its last attempt is long enough ago."""
        now_ns = self._desk.now_ns
        for contract in contracts:
            if is_new:
                self._attempts.pop(contract, None)
                self._not_before_ns.pop(contract, None)
            due_ns = max(now_ns, self._not_before_ns.get(contract, 0))
            due_ns = min(due_ns, self._due_ns.get(contract, due_ns))
            self._due_ns[contract] = due_ns
            self._set_timer(due_ns)

    def add_later(self, contract: str) -> None:
        """Something has just been tried for it, or nobody is there yet."""
        again_ns = self._desk.now_ns + self._desk.settings.retry_after_ns
        self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        self._set_timer(again_ns)

    def forget(self, contract: str) -> None:
        """It is whole, or over; perhaps there is room for another one now."""
        for found in (self._due_ns, self._attempts, self._not_before_ns):
            found.pop(contract, None)
        if self._is_crowded:
            self._is_crowded = False
            self._set_timer(self._desk.now_ns)

    def take(self, count_max: int) -> list[str]:
        """Those whose time has come, as many as may be; the rest waits."""
        self._timer_ns = None
        now_ns, settings = self._desk.now_ns, self._desk.settings
        due = (contract for contract, due_ns in self._due_ns.items() if due_ns <= now_ns)
        taken = list(islice(due, max(0, count_max)))
        self._is_crowded = next(due, None) is not None
        for contract in taken:
            del self._due_ns[contract]
            attempts = self._attempts.get(contract, 0)
            self._attempts[contract] = min(attempts + 1, DOUBLINGS_MAX)
            again_ns = now_ns + (settings.retry_after_ns << attempts)
            self._due_ns[contract] = self._not_before_ns[contract] = again_ns
        if self._is_crowded:
            self._set_timer(now_ns + settings.patience_ns)
        elif self._due_ns:
            self._set_timer(min(self._due_ns.values()))
        return taken

    def _set_timer(self, due_ns: int) -> None:
        if self._timer_ns is None or due_ns < self._timer_ns:
            self._timer_ns = due_ns
            self._desk.set_timer(self._timer, due_ns - self._desk.now_ns)
