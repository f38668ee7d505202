"""Log reports of callbacks that raise: each callback at most once a second, with a count of the
omitted ones.

A failing callback usually fails with every event, a thousand times a second; a log full of the same
traceback would hide everything else, and take more time than the deliveries.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_NS: Final = 1_000_000_000
CALLBACKS_MAX: Final = 1_024
"""Callbacks that are remembered; the one that began to fail first is forgotten first."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Failing:
    """Time of a callback's last report, and the number of reports omitted since."""

    reported_ns: int
    suppressed: int = 0


class FailureReports:
    """Failures of all callbacks that one thread calls."""

    def __init__(self, steady_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._steady_ns = steady_ns
        self._failing: dict[int, _Failing] = {}

    def report(self, callback: object, text: str, *facts: object) -> None:
        """Log the exception that is being handled, unless its callback was reported just now."""
        now_ns = self._steady_ns()
        failing = self._failing.get(id(callback))
        if failing is None:
            if len(self._failing) >= CALLBACKS_MAX:
                del self._failing[next(iter(self._failing))]
            self._failing[id(callback)] = _Failing(now_ns)
            log.exception(text, *facts)
        elif now_ns - failing.reported_ns < PAUSE_NS:
            failing.suppressed += 1
        else:
            log.exception(f"{text} suppressed=%d", *facts, failing.suppressed)
            failing.reported_ns, failing.suppressed = now_ns, 0

    def end(self) -> None:
        """Log how many reports were omitted; no more failures come."""
        suppressed = sum(each.suppressed for each in self._failing.values())
        self._failing.clear()
        if suppressed:
            log.error("callback_failures_not_reported suppressed=%d", suppressed)
