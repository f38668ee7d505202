"""Work beside the batches: one piece at a time, in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class BackgroundWorker:
    """One background thread; any thread may offer work and wait.

    The error of a failed piece is raised once, to the next caller.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        """The last one that was started."""
        self._failure: BaseException | None = None

    @property
    def is_busy(self) -> bool:
        thread = self._thread
        return thread is not None and thread.is_alive()

    def offer(self, work: Callable[[], object]) -> bool:
        """Start the work unless a piece is running; return whether it has started."""
        with self._lock:
            if self.is_busy:
                return False
            self._raise()
            thread = threading.Thread(target=self._do, args=(work,), name=self._name)
            thread.start()
            self._thread = thread
            return True

    def check(self) -> None:
        """Raises what the last piece has failed of, if it has ended."""
        with self._lock:
            if not self.is_busy:
                self._raise()

    def wait(self) -> None:
        """Wait until the running work has ended; raise the error with which it failed."""
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()
        with self._lock:
            self._raise()

    def _raise(self) -> None:
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._failure = error
