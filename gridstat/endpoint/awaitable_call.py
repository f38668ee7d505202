"""A blocking call that a coroutine waits for, and what becomes of its result if nobody does."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")
log = logging.getLogger(__name__)


async def errand(call: Callable[[], Result], give_back: Callable[[Result], object]) -> Result:
    """The call's result, made in a thread of its own.

    A thread cannot be cancelled: if the waiting is, the call goes on, and what it gets after all
    is given back, on its own thread.
    """
    running = _AwaitableCall(call, give_back)
    try:
        return await asyncio.to_thread(running.run)
    except BaseException:
        running.give_up()
        raise


class _AwaitableCall(Generic[Result]):
    """Its result goes to whoever waits, or back, and never to both."""

    def __init__(self, call: Callable[[], Result], give_back: Callable[[Result], object]) -> None:
        self._call = call
        self._give_back = give_back
        self._results: list[Result] = []
        self._is_given_up = False
        self._lock = threading.Lock()

    def run(self) -> Result:
        """On the thread of the call."""
        result = self._call()
        with self._lock:
            self._results.append(result)
            is_unwanted = self._is_given_up
        if is_unwanted:
            self._return()
        return result

    def give_up(self) -> None:
        """On the coroutine's thread, which must not wait: nobody takes the result any more."""
        with self._lock:
            self._is_given_up = True
            has_come = bool(self._results)
        if has_come:
            threading.Thread(target=self._return, name="gs-errand", daemon=True).start()

    def _return(self) -> None:
        try:
            for result in self._results:
                self._give_back(result)
        except Exception:
            log.exception("not_given_back")
