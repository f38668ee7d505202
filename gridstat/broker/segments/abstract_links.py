"""Search for the abstract links between the wanted borders, and for traps.

A search handles a few borders at a time: a complete search in a large cloud takes longer than other
requests should wait.
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

BORDERS_PER_STEP: Final = 8
"""Borders searched in one step; in a cloud of 400 routers one border takes a millisecond."""
REPORTED_CHANGE_SHARE: Final = 10
"""A change by more than a tenth of the reported value is reported."""

AbstractLinks: TypeAlias = dict[tuple[str, str], AbstractLink]


class AbstractLinkSearch:
    """Finds the links between borders; `known` holds the result of the last complete search."""

    def __init__(self, distances: CloudDistances) -> None:
        self._distances = distances
        self.known: AbstractLinks = {}
        self.version = -1
        """Version of the topology when the last search began."""
        self._borders: tuple[str, ...] = ()
        self._left: deque[str] = deque()
        self._found: AbstractLinks = {}

    @property
    def is_under_way(self) -> bool:
        return bool(self._left)

    @property
    def is_outdated(self) -> bool:
        """True if the topology has changed since the last search began."""
        return self.version != self._distances.version

    def begin(self, borders: tuple[str, ...]) -> None:
        """Start a search from the present state."""
        self._distances.clear_cache()
        self.version = self._distances.version
        self._borders = borders
        self._left = deque(borders)
        self._found = {}

    def search_some(self, now_ns: int) -> bool:
        """Search from a few more borders; return whether others are left."""
        for _ in range(min(BORDERS_PER_STEP, len(self._left))):
            self._search_from(self._left.popleft(), now_ns)
        if not self._left:
            self.known = self._found
        return bool(self._left)

    def _search_from(self, start: str, now_ns: int) -> None:
        reach = self._distances.reach((start,), now_ns)
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


def are_alike(before: AbstractLinks, now: AbstractLinks) -> bool:
    """Return whether no link has changed by enough to be reported."""
    return before.keys() == now.keys() and not any(
        _has_changed(before[key], now[key]) for key in now
    )


def _has_changed(before: AbstractLink, now: AbstractLink) -> bool:
    amounts = (
        (before.latency_us, now.latency_us),
        (_free(before.free_bytes_per_s), _free(now.free_bytes_per_s)),
        (_free(before.free_events_per_s), _free(now.free_events_per_s)),
    )
    ways = (now.link_disjoint, now.node_disjoint)
    return ways != (before.link_disjoint, before.node_disjoint) or any(
        abs(new - old) * REPORTED_CHANGE_SHARE > max(old, 1) for old, new in amounts
    )


def _free(amounts: dict[int, int] | None) -> int:
    return -1 if amounts is None else amounts.get(0, 0)


# Traps: pairs of entries and pairs of exits that no two disjoint paths through the cloud join.
#
# Traps are searched a few pairs at a time, since a failure in the cloud that starts a search also
# starts recovery. Pairs whose disjoint paths still work are not searched again.

BORDERS_MAX: Final = 8
"""Borders up to which traps are searched; with more, the parent finds traps by refusals."""
SEARCHES_PER_STEP: Final = 4
"""Pairs searched in one step; in a cloud of 400 routers one search takes two milliseconds."""
PAUSE_NS: Final = 10_000_000
"""Pause between two steps, in which the broker serves others."""

Ends = tuple[str, str]


class _DisjointPaths(NamedTuple):
    """Channels and routers of two disjoint paths; empty if the search ended undecided."""

    channel_ids: frozenset[int]
    routers: frozenset[str]


class TrapSearch:
    """Finds traps; `known` holds the result of the last complete search."""

    def __init__(self) -> None:
        self.known: tuple[Trap, ...] = ()
        self.searches = 0
        self._searched_for: tuple[tuple[str, ...], int] = ((), -1)
        self._pairs: list[tuple[Ends, Ends]] = []
        self._left: deque[tuple[Ends, Ends]] = deque()
        self._found_paths: dict[tuple[Ends, Ends], _DisjointPaths] = {}

    def search_some(self, resources: Resources, borders: tuple[str, ...]) -> bool:
        """Search a few pairs; return whether others are left."""
        if self._searched_for != (borders, resources.topology_version):
            self._begin(resources, borders)
        for _ in range(min(SEARCHES_PER_STEP, len(self._left))):
            pair = self._left.popleft()
            paths = _find_disjoint_paths(resources, *pair)
            self.searches += 1
            if paths is not None:
                self._found_paths[pair] = paths
        if not self._left:
            self.known = tuple(
                Trap(entries=entries, exits=exits)
                for entries, exits in self._pairs
                if (entries, exits) not in self._found_paths
            )
        return bool(self._left)

    def _begin(self, resources: Resources, borders: tuple[str, ...]) -> None:
        if self._searched_for[0] != borders:
            self.known = ()
        self._searched_for = (borders, resources.topology_version)
        self._pairs = _pairs(borders)
        usable = resources.channels.keys() - resources.unusable_channels()
        down = resources.down_routers()
        self._found_paths = {
            pair: paths
            for pair in self._pairs
            if (paths := self._found_paths.get(pair)) is not None
            and paths.channel_ids
            and paths.channel_ids <= usable
            and not paths.routers & down
        }
        self._left = deque(pair for pair in self._pairs if pair not in self._found_paths)


def _pairs(borders: tuple[str, ...]) -> list[tuple[Ends, Ends]]:
    if len(borders) > BORDERS_MAX:
        return []
    return [
        (entries, exits)
        for entries in combinations(borders, 2)
        for exits in combinations([name for name in borders if name not in entries], 2)
    ]


def _find_disjoint_paths(resources: Resources, entries: Ends, exits: Ends) -> _DisjointPaths | None:
    answer = disjoint_paths(
        resources.graph(),
        entries,
        exits,
        (LATENCY_US_MAX, LATENCY_US_MAX),
        excluded_channels=resources.unusable_channels(),
        excluded_routers=resources.down_routers(),
        clock=_stopped_clock,
    )
    if isinstance(answer, NotFound) and answer.reason == "budget":
        return _DisjointPaths(frozenset(), frozenset())
    if not isinstance(answer, Found) or answer.shares_edge:
        return None
    return _DisjointPaths(
        frozenset(number for path in answer.paths for number in path.channel_ids),
        frozenset(router for path in answer.paths for router in path.routers),
    )


def _stopped_clock() -> float:
    return 0.0
