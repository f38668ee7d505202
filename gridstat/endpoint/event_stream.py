"""The events of one subscription for one coroutine, from the moment at which it asked for them."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.delivery import Delivery
    from gridstat.endpoint.mailbox import Mailbox


class EventStream:
    """Made by `voltage.events()`: `async for event in stream`; ends with the subscription.

    Nothing more is kept for it once it is closed or forgotten.
    """

    def __init__(self, box: Mailbox[Delivery], leave: Callable[[], object]) -> None:
        self._box = box
        self._leave = weakref.finalize(self, leave)
        self._leave.atexit = False

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery:
        with self._box.reading():
            while (found := self._box.take()) is None:
                if not await self._box.wait_async():
                    raise StopAsyncIteration
            return found

    @property
    def dropped(self) -> int:
        """Events that were lost because the reader had fallen behind: `stream.dropped`."""
        return self._box.dropped

    async def aclose(self) -> None:
        """Take no more: `await stream.aclose()`, or `async with aclosing(voltage.events())`."""
        self._leave()
        self._box.end()
