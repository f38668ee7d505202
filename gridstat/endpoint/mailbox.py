"""A bounded queue between the delivering thread and one reader, blocking or awaiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

from gridstat.model.errors import Misuse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Queue of at most `weight_max`; the oldest items are dropped and counted in `dropped`.

    `cut(item, weight)` returns an item without its oldest part; without it, items of more than one
    weight are dropped as a whole.
    """

    def __init__(self, weight_max: int, cut: Callable[[Item, int], Item] | None = None) -> None:
        if weight_max < 1:
            raise Misuse(f"a box for {weight_max} events", hint="keep at least one")
        self._weight_max = weight_max
        self._cut = cut
        self._items: deque[tuple[Item, int]] = deque()
        self._weight = 0
        self._condition = threading.Condition()
        self._wake: Callable[[], object] | None = None
        self._is_read = False
        self.is_over = False
        self.dropped = 0

    def put(self, item: Item, weight: int = 1) -> None:
        """Add an item and wake the reader."""
        with self._condition:
            if self.is_over:
                return
            self._items.append((item, weight))
            self._weight += weight
            self._make_room()
            self._notify()

    def end(self) -> None:
        """End the queue; items already there can still be taken."""
        with self._condition:
            self.is_over = True
            self._notify()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Guard of taking and waiting: a second concurrent reader would miss wake-ups, and is
        refused."""
        with self._condition:
            if self._is_read:
                raise Misuse(
                    "another reader is reading here at the same time",
                    hint="read in one place, or give every reader a stream of its own: events()",
                )
            self._is_read = True
        try:
            yield
        finally:
            self._is_read = False

    def take(self) -> Item | None:
        """Return the oldest item, or None."""
        with self._condition:
            if not self._items:
                return None
            item, weight = self._items.popleft()
            self._weight -= weight
            return item

    def put_back(self, item: Item, weight: int) -> None:
        """Return an item to the front of the queue."""
        with self._condition:
            self._items.appendleft((item, weight))
            self._weight += weight
            self._make_room()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for an item; return whether there is one."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            while not self._items and not self.is_over:
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                self._condition.wait(left_s)
            return bool(self._items)

    async def wait_async(self) -> bool:
        """Wait for an item in a coroutine; return False when the queue has ended."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        with self._condition:
            self._wake = lambda: loop.call_soon_threadsafe(ready.set)
            if self._items or self.is_over:
                ready.set()
        try:
            await ready.wait()
        finally:
            with self._condition:
                self._wake = None
        return bool(self._items)

    # With the lock held.

    def _make_room(self) -> None:
        while (over := self._weight - self._weight_max) > 0:
            item, weight = self._items.popleft()
            lost = weight
            if self._cut is not None and weight > over:
                lost = over
                self._items.appendleft((self._cut(item, over), weight - over))
            self._weight -= lost
            self.dropped += lost

    def _notify(self) -> None:
        self._condition.notify()
        if self._wake is not None:
            with suppress(RuntimeError):  # The reader's event loop has been closed.
                self._wake()
