"""The graph of borders: ways through children, channels between them, and how near all is.

Distances are worked out once for each border of interest and kept until the graph changes, so that
a request costs a few look-ups, however many clouds there are. The same graph, seen from above, is
what this broker tells its own parent: ways between the parent's borders.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING, Final

from gridstat.model.paths import Found, disjoint_paths
from gridstat.model.paths.graph import Arc, PathGraph
from gridstat.net.command.stretch_messages import Nearness
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    LATENCY_TOLD_MAX,
    Crossing,
    CrossingsTold,
    Knot,
)
from gridstat.net.command.tree_pages import Arriving, pages_of_crossings

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.broker.tree.borders import Borders
    from gridstat.broker.tree.desk import TreeDesk

NEAR_US: Final = 100
"""What is assumed of a way that nobody has told of: a router or two."""
KNOT_BORDERS_MAX: Final = 6
"""Of more borders than these, knots are not looked for; whoever meets one plans round it."""
TOLD_AGAIN_SHARE: Final = 10
"""A hint is told anew when it has moved by more than a tenth."""
CROSSINGS_TIMER: Final = "crossings"
_FAR_US: Final = LATENCY_TOLD_MAX

Distances = dict[str, int]


class BorderGraph:
    """`version` grows with every change of the graph; what is free is read when it is needed."""

    def __init__(self, desk: TreeDesk, borders: Borders) -> None:
        self._desk = desk
        self._borders = borders
        self._arriving: dict[str, Arriving[Crossing]] = {}
        self._crossings: dict[str, dict[tuple[str, str], Crossing]] = {}
        self._knots: dict[str, frozenset[tuple[frozenset[str], frozenset[str]]]] = {}
        self._version = 0
        self._seen: tuple[int, int, int] = (-1, -1, -1)
        self._out: dict[str, list[tuple[str, int]]] = {}
        self._into: dict[str, list[tuple[str, int]]] = {}
        self._from: dict[str, Distances] = {}
        self._to: dict[str, Distances] = {}
        self._channels: dict[str, list[int]] = {}
        self._told: CrossingsTold | None = None
        self._is_timer_set = False

    # What children tell.

    def tell(self, child: str, message: CrossingsTold) -> bool:
        """Whether that was the last page, so that there may be other ways now."""
        arriving = self._arriving.setdefault(child, Arriving(BORDERS_MAX**2))
        whole = arriving.take(message.page, message.crossings, is_last=message.is_last)
        if whole is None:
            return False
        self._crossings[child] = {
            (found.from_router, found.to_router): found
            for found in whole
            if found.from_router != found.to_router
        }
        self._knots[child] = frozenset(
            (frozenset(knot.entries), frozenset(knot.exits)) for knot in message.knots
        )
        self._version += 1
        self.changed()
        return True

    def forget(self, child: str) -> None:
        self._arriving.pop(child, None)
        self._crossings.pop(child, None)
        self._knots.pop(child, None)
        self._version += 1
        self.changed()

    def crossings(self, child: str) -> Mapping[tuple[str, str], Crossing]:
        return self._crossings.get(child, {})

    def is_knot(self, child: str, entries: Iterable[str], exits: Iterable[str]) -> bool:
        return (frozenset(entries), frozenset(exits)) in self._knots.get(child, ())

    @property
    def version(self) -> tuple[int, int, int]:
        state = self._desk.state
        return self._version, state.channels.version, state.families.version

    def channels_of(self, child: str) -> list[int]:
        """Own channels from or to routers below a child, as far as they can be used."""
        self._refresh()
        return self._channels.get(child, [])

    def neighbours(self, child: str) -> set[str]:
        """The children at the other ends of those channels."""
        channels, families = self._desk.state.channels, self._desk.state.families
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
        """All borders of these children, for the first look at a pair of ends."""
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
        """From the parent's borders to a subscriber below a child, who is so near to its own."""
        near = {found.router: found.latency_us for found in ends}
        return self._nearness(
            child, near, {border: self.distances_from(border) for border in self._above()}
        )

    def starts_above(self, child: str, starts: Iterable[Nearness]) -> tuple[Nearness, ...]:
        """From a publisher below a child to the parent's borders."""
        near = {found.router: found.latency_us for found in starts}
        return self._nearness(
            child, near, {border: self.distances_to(border) for border in self._above()}
        )

    def _nearness(
        self, child: str, near: Mapping[str, int], distances: Mapping[str, Distances]
    ) -> tuple[Nearness, ...]:
        found = []
        for border, reached in distances.items():
            if self._desk.state.families.child_at(border) == child and border in near:
                found.append(Nearness(router=border, latency_us=near[border]))
                continue
            sums = [
                reached[router] + latency_us
                for router, latency_us in near.items()
                if router in reached
            ]
            if sums and min(sums) <= LATENCY_TOLD_MAX:  # The parent takes no more for a word.
                found.append(Nearness(router=border, latency_us=min(sums)))
        return tuple(found)

    def distances_from(self, border: str) -> Distances:
        self._refresh()
        known = self._from.get(border)
        if known is None:
            known = self._from[border] = _distances(self._out, border)
        return known

    def distances_to(self, border: str) -> Distances:
        self._refresh()
        known = self._to.get(border)
        if known is None:
            known = self._to[border] = _distances(self._into, border)
        return known

    def _above(self) -> list[str]:
        return sorted(self._borders.wanted_above)

    def _refresh(self) -> None:
        version = self.version
        if version == self._seen:
            return
        self._seen = version
        for index in (self._out, self._into):
            index.clear()
        self._from.clear()
        self._to.clear()
        self._channels.clear()
        channels, families = self._desk.state.channels, self._desk.state.families
        for number, account in channels.accounts.items():
            channel = account.channel
            if not account.is_usable or not self._borders.is_open(channel):
                continue
            self._join(channel.from_router, channel.to_router, channels.latency_us(number))
            for router in (channel.from_router, channel.to_router):
                self._channels.setdefault(families.child_at(router) or "", []).append(number)
        for told in self._crossings.values():
            for (from_router, to_router), crossing in told.items():
                self._join(from_router, to_router, crossing.latency_us)

    def _join(self, from_router: str, to_router: str, latency_us: int) -> None:
        self._out.setdefault(from_router, []).append((to_router, latency_us))
        self._into.setdefault(to_router, []).append((from_router, latency_us))

    # What the parent is told.

    def changed(self) -> None:
        """Something may be other than it was told; the parent hears of it in a little while."""
        if self._desk.has_parent and not self._is_timer_set:
            self._is_timer_set = True
            self._desk.set_timer(CROSSINGS_TIMER, self._desk.settings.crossings_after_ns)

    def tell_parent(self, *, is_forced: bool = False) -> None:
        self._is_timer_set = False
        if not self._desk.is_parent_joined:
            return
        told = self.seen_from_above()
        if is_forced or self._told is None or _has_moved(self._told, told):
            self._told = told
            for page in pages_of_crossings(told):
                self._desk.send_parent(page)

    def seen_from_above(self) -> CrossingsTold:
        borders = self._above()
        crossings = [
            self._crossing(entry, leaving, distances[leaving])
            for entry in borders
            for distances in [self.distances_from(entry)]
            for leaving in borders
            if leaving != entry and leaving in distances
        ]
        return CrossingsTold(
            term=self._desk.term, crossings=tuple(crossings), knots=self._knots_above(borders)
        )

    def _crossing(self, entry: str, leaving: str, latency_us: int) -> Crossing:
        free_bytes: dict[int, int] | None = None
        free_events: dict[int, int] | None = None
        for from_router, to_router in self._steps(entry, leaving):
            bytes_here, events_here = self._free(from_router, to_router)
            free_bytes = _least(free_bytes, bytes_here)
            free_events = _least(free_events, events_here)
        return Crossing(
            from_router=entry,
            to_router=leaving,
            latency_us=latency_us,
            free_bytes_per_s=free_bytes,
            free_events_per_s=free_events,
        )

    def _steps(self, entry: str, leaving: str) -> list[tuple[str, str]]:
        """The shortest way, step by step."""
        to_end = self.distances_to(leaving)
        steps, at = [], entry
        while at != leaving:
            onward = min(
                (latency_us + to_end[router], router)
                for router, latency_us in self._out[at]
                if router in to_end
            )[1]
            steps.append((at, onward))
            at = onward
            if len(steps) > len(to_end):
                break  # Steps without latency may turn in a ring; what is free is a hint only.
        return steps

    def _free(
        self, from_router: str, to_router: str
    ) -> tuple[dict[int, int] | None, dict[int, int] | None]:
        channels = self._desk.state.channels
        number = channels.between.get((from_router, to_router))
        if number is not None:
            return channels.accounts[number].free_bytes_per_s(), None
        child = self._desk.state.families.child_at(from_router)
        crossing = self.crossings(child or "").get((from_router, to_router))
        if crossing is None:
            return None, None
        return crossing.free_bytes_per_s, crossing.free_events_per_s

    def _knots_above(self, borders: list[str]) -> tuple[Knot, ...]:
        if len(borders) > KNOT_BORDERS_MAX:
            return ()
        graph = self.part(self._desk.state.families.children)
        if not set(borders) <= set(graph.number_of):
            return ()  # Where a border has no way at all, there is nothing to say of two.
        return tuple(
            Knot(entries=(first, second), exits=(third, fourth))
            for first, second in combinations(borders, 2)
            for third, fourth in combinations(borders, 2)
            if not {first, second} & {third, fourth}
            and not _has_two_ways(graph, (first, second), (third, fourth))
        )


def _has_two_ways(graph: PathGraph, entries: tuple[str, str], exits: tuple[str, str]) -> bool:
    found = disjoint_paths(graph, entries, exits, (_FAR_US, _FAR_US), clock=_no_clock)
    return isinstance(found, Found) and found.is_node_disjoint and not found.shares_edge


def _no_clock() -> float:
    return 0.0


def _distances(out: Mapping[str, list[tuple[str, int]]], origin: str) -> Distances:
    found: Distances = {origin: 0}
    heap = [(0, origin)]
    while heap:
        distance, router = heappop(heap)
        if distance > found[router]:
            continue
        for onward, latency_us in out.get(router, ()):
            total = distance + latency_us
            if total < found.get(onward, _FAR_US):
                found[onward] = total
                heappush(heap, (total, onward))
    return found


def _least(one: dict[int, int] | None, other: dict[int, int] | None) -> dict[int, int] | None:
    """The lesser in every mode that either names; an absent mode is as the baseline."""
    if one is None or other is None:
        return one if other is None else other
    return {
        mode: min(one.get(mode, one.get(0, 0)), other.get(mode, other.get(0, 0)))
        for mode in sorted(one.keys() | other.keys())
    }


def _has_moved(before: CrossingsTold, now: CrossingsTold) -> bool:
    old = {(found.from_router, found.to_router): found for found in before.crossings}
    new = {(found.from_router, found.to_router): found for found in now.crossings}
    if old.keys() != new.keys() or before.knots != now.knots:
        return True
    return any(_is_other(old[ends], found) for ends, found in new.items())


def _is_other(before: Crossing, now: Crossing) -> bool:
    return (
        _is_far(before.latency_us, now.latency_us)
        or _is_freer(before.free_bytes_per_s, now.free_bytes_per_s)
        or _is_freer(before.free_events_per_s, now.free_events_per_s)
    )


def _is_freer(before: dict[int, int] | None, now: dict[int, int] | None) -> bool:
    """Freer or fuller, in any mode."""
    if before is None or now is None:
        return before is not now
    return before.keys() != now.keys() or any(
        _is_far(before[mode], free) for mode, free in now.items()
    )


def _is_far(before: int, now: int) -> bool:
    return abs(now - before) * TOLD_AGAIN_SHARE > max(before, now)
