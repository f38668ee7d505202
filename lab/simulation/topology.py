"""Shapes of simulated clouds: chains, rings, and random ones that survive any single failure.

Made once for each size and variant and shared by all seeds, for they never change.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId

CLOUD: Final = "c1"
SHAPES: Final = ("chain", "ring", "random")
VARIANTS: Final = 4
BANDWIDTHS: Final = (0, 12_000, 40_000, 400_000)
"""Bytes a second: none declared, room for two, seven or seventy streams of sixty a second."""
EDGES: Final = 8
LATENCIES_US: Final = (100, 400, 900)


@dataclass(frozen=True, slots=True)
class Topology:
    """The routers and channels that the broker's file names; `edges` serve end-points."""

    shape: str
    routers: tuple[Router, ...]
    channels: tuple[EventChannel, ...]
    edges: tuple[str, ...]


@lru_cache(maxsize=1_024)
def topology(shape: str, size: int, variant: int) -> Topology:
    """The same for the same words."""
    random = Random(f"{shape}/{size}/{variant}")
    bandwidth = BANDWIDTHS[variant % len(BANDWIDTHS)]
    edge_numbers = sorted(random.sample(range(size), EDGES))
    routers = tuple(
        Router(
            f"{CLOUD}/r{number}",
            RouterRole.EDGE if number in edge_numbers else RouterRole.INNER,
            events_per_s_max=random.choice((400, 5_000, 1_000_000)),
        )
        for number in range(size)
    )
    channels = []
    for one, other in _pairs(shape, size, random):
        latency_us = random.choice(LATENCIES_US)
        for sender, receiver in ((one, other), (other, one)):
            channels.append(
                EventChannel(
                    ChannelId(len(channels) + 1),
                    f"{CLOUD}/r{sender}",
                    f"{CLOUD}/r{receiver}",
                    bandwidth_bytes_per_s=bandwidth,
                    latency_us=latency_us,
                )
            )
    edges = tuple(f"{CLOUD}/r{number}" for number in edge_numbers)
    return Topology(shape, routers, tuple(channels), edges)


def _pairs(shape: str, size: int, random: Random) -> list[tuple[int, int]]:
    chain = [(number, number + 1) for number in range(size - 1)]
    if shape == "chain":
        return chain
    ring = [*chain, (0, size - 1)]
    if shape == "ring":
        return ring
    found = set(ring)
    while len(found) < size + size // 4:
        one, other = sorted(random.sample(range(size), 2))
        found.add((one, other))
    return sorted(found)
