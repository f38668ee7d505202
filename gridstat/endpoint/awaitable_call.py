"""A blocking call in a thread, awaited by a coroutine; the result is undone if the coroutine is
cancelled."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
log = logging.getLogger(__name__)


async def call_in_thread(call: Callable[[], Result], undo: Callable[[Result], object]) -> Result:
    """Return the result of a call in a thread of its own.

    A thread cannot be cancelled: if the coroutine is, the call goes on, and its result is undone
    afterwards, on the call's own thread.
    """
    running = _AwaitableCall(call, undo)
    try:
        return await asyncio.to_thread(running.run)
    except BaseException:
        running.abandon()
        raise


class _AwaitableCall(Generic[Result]):
    """A call whose result is either returned or undone, never both."""

    def __init__(self, call: Callable[[], Result], undo: Callable[[Result], object]) -> None:
        self._call = call
        self._undo_result = undo
        self._results: list[Result] = []
        self._is_abandoned = False
        self._lock = threading.Lock()

    def run(self) -> Result:
        """Make the call, on its own thread."""
        result = self._call()
        with self._lock:
            self._results.append(result)
            is_unwanted = self._is_abandoned
        if is_unwanted:
            self._undo()
        return result

    def abandon(self) -> None:
        """Undo the result when it is there; on the coroutine's thread, which must not block."""
        with self._lock:
            self._is_abandoned = True
            has_come = bool(self._results)
        if has_come:
            threading.Thread(target=self._undo, name="gs-call_in_thread", daemon=True).start()

    def _undo(self) -> None:
        try:
            for result in self._results:
                self._undo_result(result)
        except Exception:
            log.exception("not_given_back")
