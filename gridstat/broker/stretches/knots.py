"""Knots: pairs of entries and pairs of exits that no two disjoint ways through the cloud join.

They are looked for a few at a time, since a cloud has most to do for others just when something in
it has failed. Pairs whose ways still stand are not looked at again.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.paths import Found, NotFound, disjoint_paths
from gridstat.model.qos import LATENCY_US_MAX
from gridstat.net.command.tree_messages import Knot

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Resources

BORDERS_MAX: Final = 8
"""For more borders than that the parent finds out by asking."""
SEARCHES_A_TURN: Final = 4
"""In a cloud of 400 routers a search takes two milliseconds."""
PAUSE_NS: Final = 10_000_000
"""Between some searches and the next, for all who wait for the broker meanwhile."""

Ends = tuple[str, str]


class _Ways(NamedTuple):
    """What two disjoint ways lead over; of nothing, where a search ended without a verdict."""

    channel_ids: frozenset[int]
    routers: frozenset[str]


class KnotSearch:
    """`known` are the knots of the last search that came to its end."""

    def __init__(self) -> None:
        self.known: tuple[Knot, ...] = ()
        self.searches = 0
        self._seen: tuple[tuple[str, ...], int] = ((), -1)
        self._pairs: list[tuple[Ends, Ends]] = []
        self._left: deque[tuple[Ends, Ends]] = deque()
        self._ways: dict[tuple[Ends, Ends], _Ways] = {}

    def look(self, resources: Resources, borders: tuple[str, ...]) -> bool:
        """Search some pairs; whether there are more to search."""
        if self._seen != (borders, resources.topology_version):
            self._begin(resources, borders)
        for _ in range(min(SEARCHES_A_TURN, len(self._left))):
            pair = self._left.popleft()
            ways = _two_ways(resources, *pair)
            self.searches += 1
            if ways is not None:
                self._ways[pair] = ways
        if not self._left:
            self.known = tuple(
                Knot(entries=entries, exits=exits)
                for entries, exits in self._pairs
                if (entries, exits) not in self._ways
            )
        return bool(self._left)

    def _begin(self, resources: Resources, borders: tuple[str, ...]) -> None:
        if self._seen[0] != borders:
            self.known = ()
        self._seen = (borders, resources.topology_version)
        self._pairs = _pairs(borders)
        there = resources.channels.keys() - resources.unusable_channels()
        down = resources.down_routers()
        self._ways = {
            pair: ways
            for pair in self._pairs
            if (ways := self._ways.get(pair)) is not None
            and ways.channel_ids
            and ways.channel_ids <= there
            and not ways.routers & down
        }
        self._left = deque(pair for pair in self._pairs if pair not in self._ways)


def _pairs(borders: tuple[str, ...]) -> list[tuple[Ends, Ends]]:
    if len(borders) > BORDERS_MAX:
        return []
    return [
        (entries, exits)
        for entries in combinations(borders, 2)
        for exits in combinations([name for name in borders if name not in entries], 2)
    ]


def _two_ways(resources: Resources, entries: Ends, exits: Ends) -> _Ways | None:
    answer = disjoint_paths(
        resources.graph(),
        entries,
        exits,
        (LATENCY_US_MAX, LATENCY_US_MAX),
        excluded_channels=resources.unusable_channels(),
        excluded_routers=resources.down_routers(),
        clock=_standing,
    )
    if isinstance(answer, NotFound) and answer.reason == "budget":
        return _Ways(frozenset(), frozenset())
    if not isinstance(answer, Found) or answer.shares_edge:
        return None
    return _Ways(
        frozenset(number for path in answer.paths for number in path.channel_ids),
        frozenset(router for path in answer.paths for router in path.routers),
    )


def _standing() -> float:
    return 0.0
