"""Clocks of the command plane; only this module reads one, tests and simulators pass their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for intervals, which never jumps, and one for dates."""

    def steady_ns(self) -> int: ...

    def posix_ns(self) -> int: ...


class SystemClock:
    """Clocks of the operating system."""

    def steady_ns(self) -> int:
        return time.monotonic_ns()

    def posix_ns(self) -> int:
        return time.time_ns()
