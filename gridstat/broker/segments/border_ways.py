"""Numbers of disjoint paths between the borders of the cloud, and from its edges to them.

The parent plans with these hints; only a reservation decides.
"""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import structs

from gridstat.model.paths.counting import count_link_disjoint, count_node_disjoint
from gridstat.net.command.tree_messages import WAYS_MAX

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gridstat.broker.capacity.resources import Resources
    from gridstat.broker.segments.abstract_links import AbstractLinks

COUNTED_BORDERS_MAX: Final = 8
"""Borders up to which paths are counted; with more, the channels at both ends bound the number."""

COUNTS_PER_STEP: Final = 4
"""Pairs counted in one step; in a cloud of 400 routers one takes a few milliseconds."""

Steps = dict[str, list[tuple[str, int]]]


class WayCount(NamedTuple):
    """Number of paths without a common channel, and without a common router between the ends."""

    link_disjoint: int
    node_disjoint: int


class BorderWays:
    """Counts over channels and routers that are up and not congested, kept while these stay."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._version = -1
        self._steps: dict[bool, Steps] = {}
        self._counts: dict[tuple[frozenset[str], str, bool], WayCount] = {}
        self.counts = 0
        """Number of counts so far that were not kept from before."""

    @staticmethod
    def are_few(borders: Sequence[str]) -> bool:
        """Return whether paths between so many borders are counted."""
        return len(borders) <= COUNTED_BORDERS_MAX

    def count_some(self, borders: Sequence[str]) -> bool:
        """Count the paths between a few more pairs of borders; return whether others are left."""
        if not self.are_few(borders):
            return False
        before = self.counts
        for start, end in permutations(borders, 2):
            if self.counts - before >= COUNTS_PER_STEP:
                return True
            self.count(frozenset((start,)), end, is_exact=True)
        return False

    def counted(self, links: AbstractLinks) -> AbstractLinks:
        """Return the links with their numbers of disjoint paths, as far as they are counted."""
        found = {}
        for (start, end), link in links.items():
            ways = self.count(frozenset((start,)), end, is_exact=False)
            found[start, end] = structs.replace(
                link, link_disjoint=ways.link_disjoint, node_disjoint=ways.node_disjoint
            )
        return found

    def count(
        self, routers: frozenset[str], border: str, *, is_exact: bool, is_backward: bool = False
    ) -> WayCount:
        """Return the numbers of paths from any of these routers to a border, or the other way.

        There is at least one such path. Without `is_exact` nothing is counted anew, and what is not
        known is replaced by upper bounds.
        """
        if border in routers:
            return WayCount(WAYS_MAX, WAYS_MAX)  # A path of one router uses no channel.
        self._refresh()
        steps = self._steps[is_backward]
        leaving = sum(len(steps.get(name, ())) for name in routers)
        arriving = len(self._steps[not is_backward].get(border, ()))
        most = max(1, min(leaving, arriving, WAYS_MAX))
        if most == 1:
            return WayCount(most, most)
        key = routers, border, is_backward
        found = self._counts.get(key)
        if found is None and not is_exact:
            return WayCount(most, most)
        if found is None:
            # Callers may pass any set of routers, so the cache needs a bound.
            if len(self._counts) > len(self._resources.routers) * COUNTED_BORDERS_MAX:
                self._counts.clear()
            links = max(1, count_link_disjoint(steps, routers, border, most))
            nodes = max(1, count_node_disjoint(steps, routers, border, links))
            found = self._counts[key] = WayCount(links, nodes)
            self.counts += 1
        return found

    def _refresh(self) -> None:
        if self._version == self._resources.topology_version:
            return
        self._version = self._resources.topology_version
        self._counts.clear()
        unusable, down = self._resources.unusable_channels(), self._resources.down_routers()
        forward: Steps = {}
        backward: Steps = {}
        for number, account in self._resources.channels.items():
            channel = account.channel
            assert channel is not None
            here, there = channel.from_router, channel.to_router
            if number not in unusable and here not in down and there not in down:
                forward.setdefault(here, []).append((there, number))
                backward.setdefault(there, []).append((here, number))
        self._steps = {False: forward, True: backward}
