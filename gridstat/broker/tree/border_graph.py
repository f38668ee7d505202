"""The graph of border routers: abstract links through children, and channels between them.

Nodes are border routers. Edges are this broker's own channels, and the abstract links that each
child reports: the nearest path between two of its borders, with latency and free capacity.

Messages. A child sends `AbstractLinksReported`, in pages; the last page replaces all that the child
reported before. This broker sends the same message to its parent: one abstract link for each pair
of the parent's borders, computed over its own graph, and the traps among those borders. A trap is
a pair of entries and a pair of exits without two disjoint paths between them.

A report to the parent is idle, pending (`ABSTRACT_LINKS_TIMER` is set) or in progress (some rows
are done, and the timer continues the rest, so that one call stays short). A change starts the
timer; several changes within `abstract_links_after_ns` are sent together, and only if some value
has moved by more than a tenth. When the parent joins, a report is sent in any case. Nothing here is
durable: after a restart, children report again when they join, and so does this broker.

Distances are computed once for each border of interest and cached until `version` changes, so that
a request costs a few look-ups, however many clouds there are.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.model.paths import Found, disjoint_paths
from gridstat.model.paths.counting import count_link_disjoint, count_node_disjoint
from gridstat.model.paths.graph import Arc, PathGraph
from gridstat.net.command.message_pages import PageAssembler, pages_of_abstract_links
from gridstat.net.command.segment_messages import Nearness
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    REPORTED_LATENCY_US_MAX,
    WAYS_MAX,
    AbstractLink,
    AbstractLinksReported,
    Trap,
    WantBorders,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_context import TreeContext

ASSUMED_LATENCY_US: Final = 100
"""Latency assumed for a path of unknown latency: about that of two routers."""
TRAP_BORDERS_MAX: Final = 6
"""Maximum number of borders with a search for traps; above it, planning finds traps by refusal."""
REPORT_CHANGE_DIVISOR: Final = 10
"""A value is reported again when it has moved by more than a tenth."""
COUNTED_BORDERS_MAX: Final = 8
"""Maximum number of borders between which disjoint paths are counted for the parent."""
ABSTRACT_LINKS_TIMER: Final = "abstract_links"
EDGES_PER_CALL_MAX: Final = 500_000
"""Maximum number of edges examined in one call for the report to the parent."""
_FAR_US: Final = REPORTED_LATENCY_US_MAX

Distances = dict[str, int]
Free = tuple[dict[int, int] | None, dict[int, int] | None]
"""Free bytes and events a second, by mode; None where no bound is declared."""


class BorderReach(NamedTuple):
    """Distances from one router to others, and the predecessor of each on its shortest path."""

    distances: Distances
    before: dict[str, str]


class GraphListener(Protocol):
    """Notified when the report of a child is complete, since there may be other paths now."""

    def abstract_links_changed(self) -> None: ...


class BorderGraph:
    """Cached distances belong to one `version` of the graph; free capacity is read when needed."""

    def __init__(self, context: TreeContext, borders: TreeBorders, listener: GraphListener) -> None:
        self._context = context
        self._borders = borders
        self._listener = listener
        self._arriving: dict[str, PageAssembler[AbstractLink]] = {}
        self._abstract_links: dict[str, dict[tuple[str, str], AbstractLink]] = {}
        self._traps: dict[str, frozenset[tuple[frozenset[str], frozenset[str]]]] = {}
        self._version = 0
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self._out: dict[str, list[tuple[str, int]]] = {}
        self._into: dict[str, list[tuple[str, int]]] = {}
        self._ways_out: dict[str, int] = {}
        """Upper bounds of the paths without a common channel from each router, and into each."""
        self._ways_into: dict[str, int] = {}
        self._steps: dict[str, list[tuple[str, object]]] = {}
        self._edge_count = 0
        self._from: dict[str, BorderReach] = {}
        self._to: dict[str, BorderReach] = {}
        self._channels: dict[str, list[int]] = {}
        self._last_report: AbstractLinksReported | None = None
        self._rows: dict[str, list[AbstractLink]] = {}
        """Rows of the report that is being computed, by entry border."""
        self._computed_borders: list[str] = []
        self._is_forced = False
        self._is_changed = False
        self._is_timer_set = False

    def capability(self) -> TreeCapability:
        """Return the registration of abstract links."""
        return TreeCapability(
            name="abstract links",
            child_messages={AbstractLinksReported: FromChild(self.receive, self._is_inside)},
            parent_messages={WantBorders: self._want_borders},
            timers={ABSTRACT_LINKS_TIMER: self.report_to_parent},
            child_removed=self.forget,
            parent_joined=self._parent_joined,
        )

    def _want_borders(self, message: WantBorders) -> None:
        """Report to the parent the abstract links between the borders that it now wants."""
        self._borders.want(message)
        self.report_to_parent(is_forced=True)

    def _parent_joined(self) -> None:
        self.report_to_parent(is_forced=True)

    # Reports of children.

    def _is_inside(self, child: str, message: AbstractLinksReported) -> bool:
        families = self._context.state.families
        return all(
            families.child_at(end) == child
            for found in message.abstract_links
            for end in (found.from_router, found.to_router)
        )

    def receive(self, child: str, message: AbstractLinksReported) -> None:
        """Take one page of a child's report; replace the child's links once it is complete."""
        arriving = self._arriving.setdefault(child, PageAssembler(BORDERS_MAX**2))
        whole = arriving.take(message.page, message.abstract_links, is_last=message.is_last)
        if whole is None:
            return
        self._abstract_links[child] = {
            (found.from_router, found.to_router): found
            for found in whole
            if found.from_router != found.to_router
        }
        self._traps[child] = frozenset(
            (frozenset(trap.entries), frozenset(trap.exits)) for trap in message.traps
        )
        self._version += 1
        self.changed()
        self._listener.abstract_links_changed()

    def forget(self, child: str) -> None:
        self._arriving.pop(child, None)
        self._abstract_links.pop(child, None)
        self._traps.pop(child, None)
        self._version += 1
        self.changed()

    def abstract_links(self, child: str) -> Mapping[tuple[str, str], AbstractLink]:
        return self._abstract_links.get(child, {})

    def is_trap(self, child: str, entries: Iterable[str], exits: Iterable[str]) -> bool:
        return (frozenset(entries), frozenset(exits)) in self._traps.get(child, ())

    @property
    def version(self) -> tuple[int, int, int]:
        state = self._context.state
        return self._version, state.channels.version, state.families.version

    def channels_of(self, child: str) -> list[int]:
        """Return this broker's usable channels from or to routers below a child."""
        self._refresh()
        return self._channels.get(child, [])

    def above(self, child: str) -> list[str]:
        """Return the routers below a child at which brokers above have channels."""
        families = self._context.state.families
        return [name for name in self._parent_borders() if families.child_at(name) == child]

    def neighbours(self, child: str) -> set[str]:
        """Return the children at the other ends of the channels of a child."""
        channels, families = self._context.state.channels, self._context.state.families
        ends = {
            families.child_at(end) or ""
            for number in self.channels_of(child)
            for end in (
                channels.accounts[number].channel.from_router,
                channels.accounts[number].channel.to_router,
            )
        }
        return ends - {child, ""}

    def part(self, children: Iterable[str]) -> PathGraph:
        """Return the graph of all borders of these children."""
        self._refresh()
        routers = {router for child in children for router in self._borders.wanted(child)}
        return PathGraph(
            [
                Arc(number, from_router, to_router, 1, latency_us)
                for number, (from_router, to_router, latency_us) in enumerate(
                    (from_router, to_router, latency_us)
                    for from_router in sorted(routers)
                    for to_router, latency_us in self._out.get(from_router, ())
                    if to_router in routers
                )
            ],
            {},
        )

    # Distances.

    def ends_above(self, child: str, ends: Iterable[Nearness]) -> tuple[Nearness, ...]:
        """Return the distances from the parent's borders to a subscriber below a child.

        `ends` are the subscriber's distances from the borders of that child.
        """
        return self._nearness(
            child,
            {found.router: found for found in ends},
            {border: self._reach(border).distances for border in self._parent_borders()},
            self._ways_out,
        )

    def starts_above(self, child: str, starts: Iterable[Nearness]) -> tuple[Nearness, ...]:
        """Return the distances from a publisher below a child to the parent's borders."""
        return self._nearness(
            child,
            {found.router: found for found in starts},
            {border: self.distances_to(border) for border in self._parent_borders()},
            self._ways_into,
        )

    def _nearness(
        self,
        child: str,
        near: Mapping[str, Nearness],
        distances: Mapping[str, Distances],
        ways: Mapping[str, int],
    ) -> tuple[Nearness, ...]:
        """Return the distances of the parent's borders, with upper bounds of disjoint paths."""
        found = []
        for border, reached in distances.items():
            if self._context.state.families.child_at(border) == child and border in near:
                found.append(near[border])
                continue
            on_path = [one for router, one in near.items() if router in reached]
            sums = [reached[one.router] + one.latency_us for one in on_path]
            if (
                sums and min(sums) <= REPORTED_LATENCY_US_MAX
            ):  # The parent refuses a larger value as malformed.
                most = sum(WAYS_MAX if one.is_edge else one.link_disjoint for one in on_path)
                count = max(1, min(most, ways.get(border, 1), WAYS_MAX))
                found.append(Nearness(router=border, latency_us=min(sums), link_disjoint=count))
        return tuple(found)

    def _reach(self, border: str) -> BorderReach:
        self._refresh()
        known = self._from.get(border)
        if known is None:
            known = self._from[border] = _shortest_paths(self._out, border)
        return known

    def distances_to(self, border: str) -> Distances:
        self._refresh()
        known = self._to.get(border)
        if known is None:
            known = self._to[border] = _shortest_paths(self._into, border)
        return known.distances

    def _parent_borders(self) -> list[str]:
        return sorted(self._borders.wanted_above)

    def _refresh(self) -> None:
        version = self.version
        if version == self._seen:
            return
        self._seen = version
        for index in (self._out, self._into):
            index.clear()
        for bounds in (self._ways_out, self._ways_into):
            bounds.clear()
        self._steps.clear()
        self._from.clear()
        self._to.clear()
        self._edge_count = 0
        self._channels.clear()
        channels, families = self._context.state.channels, self._context.state.families
        for number, account in channels.accounts.items():
            channel = account.channel
            if not account.is_usable or not self._borders.is_open(channel):
                continue
            self._add_edge(channel.from_router, channel.to_router, channels.latency_us(number))
            for router in (channel.from_router, channel.to_router):
                self._channels.setdefault(families.child_at(router) or "", []).append(number)
        for links in self._abstract_links.values():
            for (from_router, to_router), abstract_link in links.items():
                ways = abstract_link.link_disjoint
                self._add_edge(from_router, to_router, abstract_link.latency_us, ways)

    def _add_edge(self, from_router: str, to_router: str, latency_us: int, ways: int = 1) -> None:
        self._ways_out[from_router] = self._ways_out.get(from_router, 0) + ways
        self._ways_into[to_router] = self._ways_into.get(to_router, 0) + ways
        steps = self._steps.setdefault(from_router, [])
        count = len(steps)  # Channels beside each other, and copies of a link, are told apart.
        copies = [(to_router, (from_router, count + copy)) for copy in range(ways)]
        steps.extend(copies)
        self._out.setdefault(from_router, []).append((to_router, latency_us))
        self._into.setdefault(to_router, []).append((from_router, latency_us))
        self._edge_count += 1

    # Reports to the parent.

    def changed(self) -> None:
        """Schedule a report to the parent, since the graph may differ from the last report."""
        self._is_changed = True
        if self._context.has_parent and not self._is_timer_set:
            self._set_timer()

    def _set_timer(self) -> None:
        self._is_timer_set = True
        self._context.set_timer(
            ABSTRACT_LINKS_TIMER, self._context.settings.abstract_links_after_ns
        )

    def report_to_parent(self, *, is_forced: bool = False) -> None:
        """Compute the report, or continue it, and send it once all rows are complete."""
        self._is_timer_set = False
        if not self._context.is_parent_joined:
            self._computed_borders = []
            return
        borders = self._parent_borders()
        if is_forced or not self._computed_borders or self._computed_borders != borders:
            self._computed_borders, self._rows = borders, {}
            self._is_forced, self._is_changed = self._is_forced or is_forced, False
        self._compute_rows(borders)
        if len(self._rows) < len(borders):
            self._set_timer()
            return
        self._send_report(borders)
        self._computed_borders, self._rows = [], {}
        if self._is_changed:
            self._set_timer()

    def _compute_rows(self, borders: list[str]) -> None:
        self._refresh()
        count = len(self._rows) + max(1, EDGES_PER_CALL_MAX // max(1, self._edge_count))
        for entry in borders[len(self._rows) : count]:
            self._rows[entry] = self._row(entry, borders)

    def _send_report(self, borders: list[str]) -> None:
        abstract_links = tuple(found for row in self._rows.values() for found in row)
        traps = self._traps_above(borders)
        report = AbstractLinksReported(
            term=self._context.term, abstract_links=abstract_links, traps=traps
        )
        if self._is_forced or self._last_report is None or _has_moved(self._last_report, report):
            self._last_report = report
            for page in pages_of_abstract_links(report):
                self._context.send_parent(page)
        self._is_forced = False

    def _row(self, entry: str, borders: list[str]) -> list[AbstractLink]:
        """Return the shortest paths from one border to all others as abstract links."""
        reach = self._reach(entry)
        free: dict[str, Free] = {entry: (None, None)}
        row = []
        for exit_router in borders:
            if exit_router != entry and exit_router in reach.distances:
                free_bytes, free_events = self._free_along_path(exit_router, reach, free)
                link_disjoint, node_disjoint = self._way_counts(entry, exit_router, len(borders))
                found = AbstractLink(
                    from_router=entry,
                    to_router=exit_router,
                    latency_us=reach.distances[exit_router],
                    free_bytes_per_s=free_bytes,
                    free_events_per_s=free_events,
                    link_disjoint=link_disjoint,
                    node_disjoint=node_disjoint,
                )
                row.append(found)
        return row

    def _way_counts(self, entry: str, exit_router: str, borders: int) -> tuple[int, int]:
        """Return how many paths share no channel, and no router; upper bounds of many borders."""
        into = self._ways_into.get(exit_router, 1)
        most = min(self._ways_out.get(entry, 1), into, WAYS_MAX)
        if borders > COUNTED_BORDERS_MAX or most == 1:
            return most, most
        starts = frozenset((entry,))
        links = max(1, count_link_disjoint(self._steps, starts, exit_router, most))
        return links, max(1, count_node_disjoint(self._steps, starts, exit_router, links))

    def _free_along_path(self, exit_router: str, reach: BorderReach, free: dict[str, Free]) -> Free:
        """Return the minimum over all hops to `exit_router`; `free` caches results for routers."""
        hops, at = [], exit_router
        while at not in free:
            hops.append(at)
            at = reach.before[at]
        for onward in reversed(hops):
            bytes_here, events_here = self._free(at, onward)
            free[onward] = _least(free[at][0], bytes_here), _least(free[at][1], events_here)
            at = onward
        return free[exit_router]

    def _free(self, from_router: str, to_router: str) -> Free:
        channels = self._context.state.channels
        parallel = channels.between.get((from_router, to_router))
        if parallel:
            usable = [
                account for number in parallel if (account := channels.accounts[number]).is_usable
            ]
            return _most([account.free_bytes_per_s() for account in usable]), None
        child = self._context.state.families.child_at(from_router)
        abstract_link = self.abstract_links(child or "").get((from_router, to_router))
        if abstract_link is None:
            return None, None
        return abstract_link.free_bytes_per_s, abstract_link.free_events_per_s

    def _traps_above(self, borders: list[str]) -> tuple[Trap, ...]:
        if len(borders) > TRAP_BORDERS_MAX:
            return ()
        graph = self.part(self._context.state.families.children)
        if not set(borders) <= set(graph.number_of):
            return ()  # Pairs with a border that has no path at all are no traps.
        return tuple(
            Trap(entries=(first, second), exits=(third, fourth))
            for first, second in combinations(borders, 2)
            for third, fourth in combinations(borders, 2)
            if not {first, second} & {third, fourth}
            and not _has_disjoint_pair(graph, (first, second), (third, fourth))
        )


def _has_disjoint_pair(graph: PathGraph, entries: tuple[str, str], exits: tuple[str, str]) -> bool:
    found = disjoint_paths(graph, entries, exits, (_FAR_US, _FAR_US), clock=_no_clock)
    return isinstance(found, Found) and found.is_node_disjoint and not found.shares_edge


def _no_clock() -> float:
    return 0.0


def _shortest_paths(out: Mapping[str, list[tuple[str, int]]], origin: str) -> BorderReach:
    found: Distances = {origin: 0}
    before: dict[str, str] = {}
    heap = [(0, origin)]
    while heap:
        distance, router = heappop(heap)
        if distance > found[router]:
            continue
        for onward, latency_us in out.get(router, ()):
            total = distance + latency_us
            if total < found.get(onward, _FAR_US):
                found[onward] = total
                before[onward] = router
                heappush(heap, (total, onward))
    return BorderReach(found, before)


def _most(free: Sequence[dict[int, int] | None]) -> dict[int, int] | None:
    """Return the maximum for every mode of several channels beside each other."""
    bounded = [each for each in free if each is not None]
    if len(bounded) < len(free) or not bounded:
        return None
    modes = {mode for each in bounded for mode in each}
    return {mode: max(each.get(mode, each.get(0, 0)) for each in bounded) for mode in sorted(modes)}


def _least(one: dict[int, int] | None, other: dict[int, int] | None) -> dict[int, int] | None:
    """Return the minimum for every mode that either names; an absent mode counts as baseline."""
    if one is None or other is None:
        return one if other is None else other
    return {
        mode: min(one.get(mode, one.get(0, 0)), other.get(mode, other.get(0, 0)))
        for mode in sorted(one.keys() | other.keys())
    }


def _has_moved(before: AbstractLinksReported, now: AbstractLinksReported) -> bool:
    old = {(found.from_router, found.to_router): found for found in before.abstract_links}
    new = {(found.from_router, found.to_router): found for found in now.abstract_links}
    if old.keys() != new.keys() or before.traps != now.traps:
        return True
    return any(_has_link_moved(old[ends], found) for ends, found in new.items())


def _has_link_moved(before: AbstractLink, now: AbstractLink) -> bool:
    return (
        _differs(before.latency_us, now.latency_us)
        or (before.link_disjoint, before.node_disjoint) != (now.link_disjoint, now.node_disjoint)
        or _has_free_moved(before.free_bytes_per_s, now.free_bytes_per_s)
        or _has_free_moved(before.free_events_per_s, now.free_events_per_s)
    )


def _has_free_moved(before: dict[int, int] | None, now: dict[int, int] | None) -> bool:
    """Return whether free capacity has grown or shrunk noticeably in any mode."""
    if before is None or now is None:
        return before is not now
    return before.keys() != now.keys() or any(
        _differs(before[mode], free) for mode, free in now.items()
    )


def _differs(before: int, now: int) -> bool:
    return abs(now - before) * REPORT_CHANGE_DIVISOR > max(before, now)
