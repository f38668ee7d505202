"""Requests that go on while brokers die, so that one is always under way."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Self

from gridstat.endpoint.options import qos
from gridstat.model.errors import GridStatError

if TYPE_CHECKING:
    from gridstat.endpoint.connection import Connection


class Asking:
    """Subscribes to one variable after another from a thread; what is granted is kept.

    What is refused is asked for again: another broker was away for longer than anybody waits.
    """

    def __init__(self, end: Connection, names: list[str]) -> None:
        self._end = end
        self._names = names
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.granted: dict[str, int] = {}
        self.refused: list[str] = []

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        waiting = deque(self._names)
        while waiting and not self._is_over.is_set():
            name = waiting[0]
            try:
                made = self._end.subscribe(name, qos=qos(latency_ms=10_000))
            except GridStatError as error:
                self.refused.append(str(error))
            else:
                self.granted[name] = made.contract.subscription_id
                waiting.popleft()

    def complaint_below(self, count: int) -> str | None:
        return None if len(self.granted) >= count else f"{len(self.granted)} of {count} granted"
