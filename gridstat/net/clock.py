"""The only place of the command plane that reads a clock; tests and simulators pass their own."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two clocks: one for intervals, which never jumps, and one for dates."""

    def steady_ns(self) -> int: ...

    def posix_ns(self) -> int: ...


class SystemClock:
    """The clocks of the machine."""

    def steady_ns(self) -> int:
        return time.monotonic_ns()

    def posix_ns(self) -> int:
        return time.time_ns()
