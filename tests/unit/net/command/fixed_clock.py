"""A clock that advances only on request."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

START = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FixedClock:
    """Both clocks at one moment, moved by hand."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def steady_ns(self) -> int:
        return self.posix_ns()

    def posix_ns(self) -> int:
        return int(self.now.timestamp() * 1e9)

    def move(self, by: timedelta) -> None:
        self.now += by
