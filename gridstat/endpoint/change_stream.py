"""Followers of changes: a callback on the delivering thread, and bounded streams."""

from __future__ import annotations

import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Final, Self

from gridstat.endpoint.mailbox import Mailbox
from gridstat.endpoint.options import check_wait
from gridstat.model.call_options import checked_calls
from gridstat.model.exact_numbers import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.endpoint.change import Change, OnChange

STREAM_CHANGES_MAX: Final = 1_024
_LOCK: Final = threading.RLock()
"""Lock for all lists of streams: they change rarely, and a lock for each subscription takes much
memory.

It may be taken twice: streams may be forgotten, and so left, in the middle of anything."""


@checked_calls()
class ChangeStream:
    """Changes from the call of `changes()` on: `for change in stream` or `async for`.

    It ends with its connection, subscription or publication. A reader that falls behind loses the
    oldest, counted in `dropped`; nothing more is kept once it is closed or forgotten.
    """

    def __init__(self, box: Mailbox[Change], leave: Callable[[], object]) -> None:
        self._box = box
        self._leave = weakref.finalize(self, leave)
        self._leave.atexit = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Change:
        found = self.next()
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        with self._box.reading():
            while (found := self._box.take()) is None:
                if not await self._box.wait_async():
                    raise StopAsyncIteration
            return found

    def next(self, timeout_s: float | None = None) -> Change | None:
        """Return the next change; None when the time is over or no more changes come.

        `stream.next(timeout_s=0)` does not wait.
        """
        if timeout_s is not None:
            check_wait("timeout_s", timeout_s)
        with self._box.reading():
            self._box.wait(timeout_s)
            return self._box.take()

    @property
    def dropped(self) -> int:
        """Number of changes lost because the reader was too slow: `stream.dropped`."""
        return self._box.dropped

    def close(self) -> None:
        """Stop the stream: `stream.close()`; changes already there can still be read."""
        self._leave()
        self._box.end()

    async def aclose(self) -> None:
        """Close the stream, for `async with aclosing(grid.changes())`."""
        self.close()


class ChangeFollowers:
    """Followers of the changes of one subject, or of a whole connection.

    Changes are reported on the session's thread, in order; callbacks run where `post` runs them,
    one after another, so that none is called while a lock is held and one that raises stops no
    other.
    """

    __slots__ = ("_boxes", "_is_over", "_on_change", "_post")

    def __init__(
        self, post: Callable[[Callable[[], object]], object], on_change: OnChange | None = None
    ) -> None:
        self._post = post
        self._on_change = on_change
        self._boxes: tuple[Mailbox[Change], ...] = ()
        self._is_over = False

    @property
    def has_any(self) -> bool:
        """True if there is a callback or a stream."""
        return self._on_change is not None or bool(self._boxes)

    def notify(self, change: Change) -> None:
        """Notify all followers; after `end` none."""
        if self._is_over:
            return
        for box in self._boxes:
            box.put(change)
        if self._on_change is not None:
            self._post(partial(self._on_change, change))

    def stream(self, changes_max: int) -> ChangeStream:
        """Return one more stream, which begins now."""
        box: Mailbox[Change] = Mailbox(whole_number("changes_max", changes_max))
        with _LOCK:
            self._boxes = (*self._boxes, box)
            if self._is_over:
                box.end()
        return ChangeStream(box, partial(self._remove, box))

    def end(self) -> None:
        """End all streams; changes already there can still be read."""
        with _LOCK:
            self._is_over = True
            for box in self._boxes:
                box.end()

    def _remove(self, box: Mailbox[Change]) -> None:
        with _LOCK:
            self._boxes = tuple(each for each in self._boxes if each is not box)
