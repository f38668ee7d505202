"""How far it is through the cloud: the fastest ways between routers, and what is free on them.

These are hints for the parent, which plans with them; only a reservation promises anything.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import floor
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.resources import Resources

KNOWN_NS: Final = 1_000_000_000
"""A distance is believed so long while the topology stays; loads move it, but not by much."""


class Reach(NamedTuple):
    """The fastest way to a router, routers at both ends included; None where nothing bounds it."""

    latency_us: int
    free_bytes_per_s: int | None
    free_events_per_s: int


class Ways:
    """Over what is up and not congested at the moment."""

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._known: dict[tuple[tuple[str, ...], bool], tuple[int, int, dict[str, Reach]]] = {}

    def reach(
        self, starts: Iterable[str], now_ns: int, *, is_backward: bool = False
    ) -> dict[str, Reach]:
        """From any of these routers to all others, or from all others to one of these."""
        key = tuple(starts), is_backward
        version = self._resources.topology_version
        known = self._known.get(key)
        if known is not None and known[0] == version and now_ns - known[1] < KNOWN_NS:
            return known[2]
        if len(self._known) > len(self._resources.routers):
            self._known.clear()
        found = self._search(key[0], is_backward=is_backward)
        self._known[key] = version, now_ns, found
        return found

    def _search(self, starts: tuple[str, ...], *, is_backward: bool) -> dict[str, Reach]:
        steps = self._steps(is_backward=is_backward)
        order = count()
        heap: list[tuple[int, int, str, Reach]] = []
        for name in starts:
            if name in steps:
                here = self._at(name)
                heappush(heap, (here.latency_us, next(order), name, here))
        found: dict[str, Reach] = {}
        while heap:
            _, _, name, so_far = heappop(heap)
            if name in found:
                continue
            found[name] = so_far
            for other, number in steps[name]:
                if other not in found:
                    farther = _through(so_far, self._over(number), self._at(other))
                    heappush(heap, (farther.latency_us, next(order), other, farther))
        return found

    def _steps(self, *, is_backward: bool) -> dict[str, list[tuple[str, int]]]:
        resources = self._resources
        closed, down = resources.unusable_channels(), resources.down_routers()
        steps: dict[str, list[tuple[str, int]]] = {
            name: [] for name in resources.routers if name not in down
        }
        for number, carriage in resources.channels.items():
            channel = carriage.channel
            assert channel is not None
            ends = channel.from_router, channel.to_router
            if number in closed or not all(end in steps for end in ends):
                continue
            here, there = reversed(ends) if is_backward else ends
            steps[here].append((there, number))
        return steps

    def _at(self, name: str) -> Reach:
        account = self._resources.router(name)
        free = account.router.events_per_s_max - account.events.at_most()
        return Reach(account.latency_us, None, max(0, floor(free)))

    def _over(self, number: int) -> Reach:
        carriage = self._resources.channel(number)
        assert carriage.channel is not None
        declared = carriage.channel.bandwidth_bytes_per_s
        free = max(0, floor(declared - carriage.bytes.at_most())) if declared else None
        return Reach(carriage.latency_us, free, -1)


def _through(so_far: Reach, channel: Reach, router: Reach) -> Reach:
    both = so_far.free_bytes_per_s, channel.free_bytes_per_s
    bounds = [free for free in both if free is not None]
    return Reach(
        so_far.latency_us + channel.latency_us + router.latency_us,
        min(bounds) if bounds else None,
        min(so_far.free_events_per_s, router.free_events_per_s),
    )
