"""One future for several requests, whose results are one list in the order of the requests."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Item = TypeVar("Item")


class JoinedRequests(Future[list[Item]]):
    """Results of all parts, in order; if one part fails, the others are given back.

    Once cancelled, what is granted already, and what is granted later, is given back too.
    """

    def __init__(
        self, parts: Sequence[Future[list[Item]]], give_back: Callable[[list[Item]], object]
    ) -> None:
        super().__init__()
        self._parts = tuple(parts)
        self._give_back = give_back
        self._left = len(self._parts)
        self._lock = threading.Lock()
        for part in self._parts:
            part.add_done_callback(self._part_done)

    def cancel(self) -> bool:
        """Cancel all parts; False if all of them have ended."""
        if not super().cancel():
            return False
        undo(self._parts, self._give_back)
        return True

    def _part_done(self, _: Future[list[Item]]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        if not self.set_running_or_notify_cancel():
            return
        failed = [part for part in self._parts if part.cancelled() or part.exception() is not None]
        if not failed:
            self.set_result([each for part in self._parts for each in part.result()])
            return
        for part in self._parts:
            if part not in failed:
                self._give_back(part.result())
        is_cancelled = failed[0].cancelled()
        self.set_exception(CancelledError() if is_cancelled else failed[0].exception())


def undo(parts: Sequence[Future[list[Item]]], give_back: Callable[[list[Item]], object]) -> None:
    """Cancel requests, and give back what those have granted that cannot be cancelled any more."""

    def give(done: Future[list[Item]]) -> None:
        if not done.cancelled() and done.exception() is None:
            give_back(done.result())

    for part in parts:
        if not part.cancel():
            part.add_done_callback(give)
