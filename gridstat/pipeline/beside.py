"""Work beside the batches: one piece at a time, in a thread of its own."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class Beside:
    """Whoever offers work is told of what the piece before it has failed of."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def is_busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def offer(self, work: Callable[[], object]) -> bool:
        """Begins with it, unless there is a piece under way; returns whether it has begun."""
        if self.is_busy:
            return False
        self.wait()
        self._thread = threading.Thread(target=self._do, args=(work,), name=self._name)
        self._thread.start()
        return True

    def wait(self) -> None:
        """Until nothing is under way; raises what the last piece has failed of, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _do(self, work: Callable[[], object]) -> None:
        try:
            work()
        except Exception as error:
            self._failure = error
