"""Crossings: how far it is between the borders that a parent wants to hear of, and what is free.

Those from a few borders are looked for at a time: in a large cloud with many of them one look takes
longer than anybody should wait for the broker.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

from gridstat.model.paths import Found, NotFound, disjoint_paths
from gridstat.model.qos import LATENCY_US_MAX
from gridstat.net.command.tree_messages import AbstractLink, Trap

if TYPE_CHECKING:
    from gridstat.broker.capacity.resources import Resources
    from gridstat.broker.segments.cloud_distances import CloudDistances

BORDERS_A_TURN: Final = 8
"""In a cloud of 400 routers the ways from one border take a millisecond."""
WORTH_TELLING: Final = 10
"""A change of a tenth of what was told before is worth telling."""

Crossings: TypeAlias = dict[tuple[str, str], AbstractLink]


class AbstractLinkSearch:
    """`known` are the abstract_links of the last look that came to its end."""

    def __init__(self, ways: CloudDistances) -> None:
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
                self._found[start, end] = AbstractLink(
                    from_router=start,
                    to_router=end,
                    latency_us=reach[end].latency_us,
                    free_bytes_per_s=None if free_bytes is None else {0: free_bytes},
                    free_events_per_s={0: reach[end].free_events_per_s},
                )


def are_alike(before: Crossings, now: Crossings) -> bool:
    """Whether none of them has changed by enough to be told."""
    return before.keys() == now.keys() and not any(_has_moved(before[key], now[key]) for key in now)


def _has_moved(before: AbstractLink, now: AbstractLink) -> bool:
    amounts = (
        (before.latency_us, now.latency_us),
        (_free(before.free_bytes_per_s), _free(now.free_bytes_per_s)),
        (_free(before.free_events_per_s), _free(now.free_events_per_s)),
    )
    return any(abs(new - old) * WORTH_TELLING > max(old, 1) for old, new in amounts)


def _free(amounts: dict[int, int] | None) -> int:
    return -1 if amounts is None else amounts.get(0, 0)


# Traps: pairs of entries and pairs of exits that no two disjoint ways through the cloud join.
#
# Traps are searched for a few at a time, since a cloud has most to do for others just when
# something in it has failed. Pairs whose ways still stand are not searched again.

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


class TrapSearch:
    """`known` are the traps of the last search that came to its end."""

    def __init__(self) -> None:
        self.known: tuple[Trap, ...] = ()
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
                Trap(entries=entries, exits=exits)
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
