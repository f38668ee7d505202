"""How far it is through the cloud: the fastest ways between routers, and what is free on them.

These are hints for the parent, which plans with them; only a reservation promises anything.
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

KNOWN_NS: Final = 1_000_000_000
"""A distance is believed so long while the topology stays; loads move it, but not by much."""


class Reach(NamedTuple):
    """The fastest way to a router, routers at both ends included; None where nothing bounds it."""

    latency_us: int
    free_bytes_per_s: int | None
    free_events_per_s: int


Steps: TypeAlias = dict[str, list[tuple[str, Reach]]]


class CloudDistances:
    """Over what is up and not congested at the moment, as far as `_known` is not older than that.

    `_steps` are, for ways forward and backward, the routers next to each router with what the
    channel and the router there add to a way.
    """

    def __init__(self, resources: Resources) -> None:
        self._resources = resources
        self._known_at = (-1, 0)
        self._steps: dict[bool, Steps] = {}
        self._known: dict[tuple[tuple[str, ...], bool], dict[str, Reach]] = {}

    @property
    def version(self) -> int:
        """That of the topology: another one has other ways."""
        return self._resources.topology_version

    def forget(self) -> None:
        """What is asked next is looked for anew, whatever its age."""
        self._known_at = (-1, 0)

    def reach(
        self, starts: Iterable[str], now_ns: int, *, is_backward: bool = False
    ) -> dict[str, Reach]:
        """From any of these routers to all others, or from all others to one of these."""
        version, since_ns = self._known_at
        if version != self.version or now_ns - since_ns >= KNOWN_NS:
            self._known_at = self.version, now_ns
            self._known.clear()
            self._steps.clear()
        key = tuple(starts), is_backward
        found = self._known.get(key)
        if found is None:
            if len(self._known) > len(self._resources.routers):
                self._known.clear()
            if is_backward not in self._steps:
                self._steps[is_backward] = self._look(is_backward=is_backward)
            found = self._known[key] = self._search(key[0], self._steps[is_backward])
        return found

    def _search(self, starts: tuple[str, ...], steps: Steps) -> dict[str, Reach]:
        order = count()
        heap: list[tuple[int, int, str, Reach | None, Reach]] = []
        for name in starts:
            if name in steps:
                here = self._at(name)
                heappush(heap, (here.latency_us, next(order), name, None, here))
        found: dict[str, Reach] = {}
        nearest: dict[str, int] = {}
        while heap:
            latency_us, _, name, before, step = heappop(heap)
            if name in found:
                continue
            so_far = found[name] = step if before is None else _through(before, step)
            for other, more in steps[name]:
                farther_us = latency_us + more.latency_us
                if other not in nearest or farther_us < nearest[other]:
                    nearest[other] = farther_us
                    heappush(heap, (farther_us, next(order), other, so_far, more))
        return found

    def _look(self, *, is_backward: bool) -> Steps:
        resources = self._resources
        closed, down = resources.unusable_channels(), resources.down_routers()
        at = {name: self._at(name) for name in resources.routers if name not in down}
        steps: Steps = {name: [] for name in at}
        for number, carriage in resources.channels.items():
            channel = carriage.channel
            assert channel is not None
            ends = channel.from_router, channel.to_router
            if number in closed or not all(end in steps for end in ends):
                continue
            here, there = reversed(ends) if is_backward else ends
            steps[here].append((there, _over(carriage, channel, at[there])))
        return steps

    def _at(self, name: str) -> Reach:
        account = self._resources.router(name)
        free = account.router.events_per_s_max - account.events.upper_bound()
        return Reach(account.latency_us, None, max(0, floor(free)))


def _over(carriage: HopAccount, channel: EventChannel, router: Reach) -> Reach:
    """What a channel and the router behind it add to a way."""
    declared = channel.bandwidth_bytes_per_s
    free = max(0, floor(declared - carriage.charged_upper_bound())) if declared else None
    return Reach(carriage.latency_us + router.latency_us, free, router.free_events_per_s)


def _through(so_far: Reach, step: Reach) -> Reach:
    both = so_far.free_bytes_per_s, step.free_bytes_per_s
    bounds = [free for free in both if free is not None]
    return Reach(
        so_far.latency_us + step.latency_us,
        min(bounds) if bounds else None,
        min(so_far.free_events_per_s, step.free_events_per_s),
    )
