"""A priority queue of deadlines with one timer.

Deadlines are added in any order: the time allowed for a reply depends on the height of the tree
below, which changes.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_context import TreeContext

KeyT = TypeVar("KeyT", int, tuple[str, int])


class Deadlines(Generic[KeyT]):
    """The timer runs for the nearest deadline; callers ignore keys that have ended meanwhile."""

    def __init__(self, context: TreeContext, timer: str) -> None:
        self._context = context
        self._timer = timer
        self._heap: list[tuple[int, KeyT]] = []

    def add(self, until_ns: int, key: KeyT) -> None:
        heappush(self._heap, (until_ns, key))
        if self._heap[0] == (until_ns, key):
            self._set_timer()

    def take_due(self) -> list[tuple[int, KeyT]]:
        """Remove and return all deadlines that are due, oldest first."""
        due = []
        while self._heap and self._heap[0][0] <= self._context.now_ns:
            due.append(heappop(self._heap))
        if self._heap:
            self._set_timer()
        return due

    def _set_timer(self) -> None:
        self._context.set_timer(self._timer, self._heap[0][0] - self._context.now_ns)
