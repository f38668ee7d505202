"""Crossings: how far it is between the borders that a parent wants to hear of, and what is free.

Those from a few borders are looked for at a time: in a large cloud with many of them one look takes
longer than anybody should wait for the broker.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.net.command.tree_messages import Crossing

if TYPE_CHECKING:
    from gridstat.broker.stretches.ways import Ways

BORDERS_A_TURN: Final = 8
"""In a cloud of 400 routers the ways from one border take a millisecond."""
WORTH_TELLING: Final = 10
"""A change of a tenth of what was told before is worth telling."""

Crossings: TypeAlias = dict[tuple[str, str], Crossing]


class CrossingSearch:
    """`known` are the crossings of the last look that came to its end."""

    def __init__(self, ways: Ways) -> None:
        self._ways = ways
        self.known: Crossings = {}
        self.version = -1
        """That of the topology when the last look began."""
        self._borders: tuple[str, ...] = ()
        self._left: deque[str] = deque()
        self._found: Crossings = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._left)

    @property
    def is_outdated(self) -> bool:
        """Whether more than loads has changed since."""
        return self.version != self._ways.version

    def begin(self, borders: tuple[str, ...]) -> None:
        """Look anew, at what is the case now."""
        self._ways.forget()
        self.version = self._ways.version
        self._borders = borders
        self._left = deque(borders)
        self._found = {}

    def look(self, now_ns: int) -> bool:
        """Look at some more; whether there are others left."""
        for _ in range(min(BORDERS_A_TURN, len(self._left))):
            self._look_from(self._left.popleft(), now_ns)
        if not self._left:
            self.known = self._found
        return bool(self._left)

    def _look_from(self, start: str, now_ns: int) -> None:
        reach = self._ways.reach((start,), now_ns)
        for end in self._borders:
            if end != start and end in reach:
                free_bytes = reach[end].free_bytes_per_s
                self._found[start, end] = Crossing(
                    from_router=start,
                    to_router=end,
                    latency_us=reach[end].latency_us,
                    free_bytes_per_s=None if free_bytes is None else {0: free_bytes},
                    free_events_per_s={0: reach[end].free_events_per_s},
                )


def are_alike(before: Crossings, now: Crossings) -> bool:
    """Whether none of them has changed by enough to be told."""
    return before.keys() == now.keys() and not any(_has_moved(before[key], now[key]) for key in now)


def _has_moved(before: Crossing, now: Crossing) -> bool:
    amounts = (
        (before.latency_us, now.latency_us),
        (_free(before.free_bytes_per_s), _free(now.free_bytes_per_s)),
        (_free(before.free_events_per_s), _free(now.free_events_per_s)),
    )
    return any(abs(new - old) * WORTH_TELLING > max(old, 1) for old, new in amounts)


def _free(amounts: dict[int, int] | None) -> int:
    return -1 if amounts is None else amounts.get(0, 0)
