"""Fastest paths between the routers of the cloud, and the free capacity on them.

The parent plans with these hints; only a reservation guarantees capacity.
"""

from __future__ import annotations

from heapq import heappop, heappush
from itertools import count
from math import floor
from typing import TYPE_CHECKING, Final, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.cloud import EventChannel

CACHED_NS: Final = 1_000_000_000
"""Age up to which a distance is reused while the topology stays; loads change it little."""


class Reach(NamedTuple):
    """Fastest path to a router, including both end routers; None means unbounded."""

    latency_us: int
    free_bytes_per_s: int | None
    free_events_per_s: int


Steps: TypeAlias = dict[str, list[tuple[str, Reach]]]


class CloudDistances:
    """Distances over channels and routers that are up and not congested.

    `_cache` holds results no older than `CACHED_NS`. `_steps` holds, for each direction, the
    neighbours of each router and what the channel and the neighbour add to a path.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._cached_at = (-1, 0)
        self._steps: dict[bool, Steps] = {}
        self._cache: dict[tuple[tuple[str, ...], bool], dict[str, Reach]] = {}

    @property
    def version(self) -> int:
        """Version of the topology."""
        return self._resources.topology_version

    def clear_cache(self) -> None:
        """Search again at the next call."""
        self._cached_at = (-1, 0)

    def reach(
        self, starts: Iterable[str], now_ns: int, *, is_backward: bool = False
    ) -> dict[str, Reach]:
        """Return the fastest path from any of these routers to each other one.

        With `is_backward` the paths lead from each router to the nearest of these.
        """
        version, since_ns = self._cached_at
        if version != self.version or now_ns - since_ns >= CACHED_NS:
            self._cached_at = self.version, now_ns
            self._cache.clear()
            self._steps.clear()
        key = tuple(starts), is_backward
        found = self._cache.get(key)
        if found is None:
            # Callers may pass any set of routers, so the cache needs a bound.
            if len(self._cache) > len(self._resources.routers):
                self._cache.clear()
            if is_backward not in self._steps:
                self._steps[is_backward] = self._build_steps(is_backward=is_backward)
            found = self._cache[key] = self._search(key[0], self._steps[is_backward])
        return found

    def _search(self, starts: tuple[str, ...], steps: Steps) -> dict[str, Reach]:
        order = count()
        heap: list[tuple[int, int, str, Reach | None, Reach]] = []
        for name in starts:
            if name in steps:
                here = self._router_step(name)
                heappush(heap, (here.latency_us, next(order), name, None, here))
        found: dict[str, Reach] = {}
        nearest: dict[str, int] = {}
        while heap:
            latency_us, _, name, before, step = heappop(heap)
            if name in found:
                continue
            so_far = found[name] = step if before is None else _extended(before, step)
            for other, more in steps[name]:
                farther_us = latency_us + more.latency_us
                if other not in nearest or farther_us < nearest[other]:
                    nearest[other] = farther_us
                    heappush(heap, (farther_us, next(order), other, so_far, more))
        return found

    def _build_steps(self, *, is_backward: bool) -> Steps:
        resources = self._resources
        unusable, down = resources.unusable_channels(), resources.down_routers()
        at = {name: self._router_step(name) for name in resources.routers if name not in down}
        steps: Steps = {name: [] for name in at}
        for number, account in resources.channels.items():
            channel = account.channel
            assert channel is not None
            ends = channel.from_router, channel.to_router
            if number in unusable or not all(end in steps for end in ends):
                continue
            here, there = reversed(ends) if is_backward else ends
            steps[here].append((there, _channel_step(account, channel, at[there])))
        return steps

    def _router_step(self, name: str) -> Reach:
        account = self._resources.router(name)
        free = account.router.events_per_s_max - account.events.upper_bound()
        return Reach(account.latency_us, None, max(0, floor(free)))


def _channel_step(account: HopAccount, channel: EventChannel, router: Reach) -> Reach:
    """Return what a channel and the router behind it add to a path."""
    declared = channel.bandwidth_bytes_per_s
    free = max(0, floor(declared - account.charged_upper_bound())) if declared else None
    return Reach(account.latency_us + router.latency_us, free, router.free_events_per_s)


def _extended(so_far: Reach, step: Reach) -> Reach:
    both = so_far.free_bytes_per_s, step.free_bytes_per_s
    bounds = [free for free in both if free is not None]
    return Reach(
        so_far.latency_us + step.latency_us,
        min(bounds) if bounds else None,
        min(so_far.free_events_per_s, step.free_events_per_s),
    )
