"""A bounded box between the delivering thread and one reader, blocking or awaiting."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Item = TypeVar("Item")


class Mailbox(Generic[Item]):
    """Never holds more than `weight_max`; the oldest make room and are counted in `dropped`."""

    def __init__(self, weight_max: int) -> None:
        self._weight_max = weight_max
        self._items: deque[tuple[Item, int]] = deque()
        self._weight = 0
        self._condition = threading.Condition()
        self._wake: Callable[[], object] | None = None
        self.is_over = False
        self.dropped = 0

    def put(self, item: Item, weight: int = 1) -> None:
        """Put something in; the reader wakes."""
        with self._condition:
            if self.is_over:
                return
            self._items.append((item, weight))
            self._weight += weight
            while self._weight > self._weight_max and len(self._items) > 1:
                self.dropped += self._pop_weight()
            self._notify()

    def end(self) -> None:
        """Nothing more comes; what is there can still be taken."""
        with self._condition:
            self.is_over = True
            self._notify()

    def take(self) -> Item | None:
        """The oldest item, None if there is none."""
        with self._condition:
            if not self._items:
                return None
            item, weight = self._items.popleft()
            self._weight -= weight
            return item

    def put_back(self, item: Item, weight: int) -> None:
        """What the reader could not use becomes the oldest again."""
        with self._condition:
            self._items.appendleft((item, weight))
            self._weight += weight

    def wait(self, timeout_s: float | None) -> bool:
        """Wait for something to take; whether there is something."""
        deadline_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            while not self._items and not self.is_over:
                left_s = None if deadline_s is None else deadline_s - time.monotonic()
                if left_s is not None and left_s <= 0:
                    break
                self._condition.wait(left_s)
            return bool(self._items)

    async def wait_async(self) -> bool:
        """The same for a coroutine; False when nothing more comes."""
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

    def _pop_weight(self) -> int:
        _, weight = self._items.popleft()
        self._weight -= weight
        return weight

    def _notify(self) -> None:
        self._condition.notify()
        if self._wake is not None:
            with suppress(RuntimeError):  # The reader's event loop has been closed.
                self._wake()
