"""Holds table changes back for at most 10 ms, so that a flood of commands is few commits.

A commit costs the core a copy of the touched buckets; a thousand subscriptions that arrive
together should pay that once. The first change starts the wait, so no change waits longer than it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.model.identifiers import VariableId

WAIT_NS: Final = 10_000_000


class CommitQueue:
    """The variables touched since the last commit; empty means that nothing is due.

    The clock is any nanosecond counter that only grows.
    """

    def __init__(self, clock_ns: Callable[[], int], *, wait_ns: int = WAIT_NS) -> None:
        self._clock_ns = clock_ns
        self._wait_ns = wait_ns
        self._touched: set[VariableId] = set()
        self._due_ns = 0

    def touch(self, variable_ids: Iterable[VariableId]) -> None:
        was_empty = not self._touched
        self._touched.update(variable_ids)
        if was_empty and self._touched:
            self._due_ns = self._clock_ns() + self._wait_ns

    def wait_ns(self) -> int | None:
        """How long until the next commit is due; None when there is nothing to commit."""
        if not self._touched:
            return None
        return max(0, self._due_ns - self._clock_ns())

    def take_due(self) -> frozenset[VariableId]:
        """The variables to commit now, if the wait is over; they leave the queue."""
        if self.wait_ns() != 0:
            return frozenset()
        return self.take_all()

    def take_all(self) -> frozenset[VariableId]:
        """The variables to commit, without waiting: at the start and at the end of a router."""
        taken = frozenset(self._touched)
        self._touched.clear()
        return taken
