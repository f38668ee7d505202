"""Shapes of simulated clouds: chains, rings, and random ones that survive any single failure.

Made once for each size and variant and shared by all seeds, since they never change.
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
WAIST: Final = "waist"
"""Shape of two rings with one router in common, so that paths across share it."""
VARIANTS: Final = 3
BANDWIDTHS: Final = {"ample": (0, 400_000), "tight": (12_000, 40_000)}
"""Bytes a second: none declared, or room for so many streams of 4,000."""
EVENTS_PER_S: Final = {"ample": (1_000_000,), "tight": (400, 5_000)}
EDGES: Final = 6
NEAR: Final = 9
"""Number of neighbours among which edges lie; farther edges would make seeds slow."""
LATENCIES_US: Final = (100, 400, 900)
PARALLEL_SHARE: Final = 0.4
"""Share of the topologies with links beside each other, and of their pairs that have two."""
BESIDE_SHARE: Final = 0.3
RISKS_SHARE: Final = 0.4
"""Share of the topologies with named risks, their most, and the most links that run one."""
DUCTS_MAX: Final = 3
DUCT_LINKS_MAX: Final = 4


@dataclass(frozen=True, slots=True)
class Outline:
    """Parameters of a topology."""

    shape: str
    size: int
    room: str
    variant: int


@dataclass(frozen=True, slots=True)
class Topology:
    """The routers and channels that the broker's file names; `edges` serve end-points."""

    outline: Outline
    routers: tuple[Router, ...]
    channels: tuple[EventChannel, ...]
    edges: tuple[str, ...]


@lru_cache(maxsize=1_024)
def topology(outline: Outline) -> Topology:
    """Return the topology of an outline; equal outlines give equal topologies."""
    shape, size, room = outline.shape, outline.size, outline.room
    random = Random(f"{shape}/{size}/{room}/{outline.variant}")
    bandwidth = random.choice(BANDWIDTHS[room])
    pairs = _pairs(shape, size, random)
    centre = 0 if shape == WAIST else random.randrange(size)
    edge_numbers = sorted(random.sample(_near(pairs, centre), EDGES))
    routers = tuple(
        Router(
            f"{CLOUD}/r{number}",
            RouterRole.EDGE if number in edge_numbers else RouterRole.INNER,
            events_per_s_max=random.choice(EVENTS_PER_S[room]),
        )
        for number in range(size)
    )
    channels: list[EventChannel] = []
    drawn = Random(f"links of {shape}/{size}/{room}/{outline.variant}")
    for (one, other), name, risks in _links(pairs, drawn):
        latency_us = drawn.choice(LATENCIES_US) if name else random.choice(LATENCIES_US)
        for sender, receiver in ((one, other), (other, one)):
            channels.append(
                EventChannel(
                    ChannelId(len(channels) + 1),
                    f"{CLOUD}/r{sender}",
                    f"{CLOUD}/r{receiver}",
                    bandwidth_bytes_per_s=bandwidth,
                    latency_us=latency_us,
                    name=name,
                    risks=risks,
                )
            )
    edges = tuple(f"{CLOUD}/r{number}" for number in edge_numbers)
    return Topology(outline, routers, tuple(channels), edges)


def _links(
    pairs: list[tuple[int, int]], random: Random
) -> list[tuple[tuple[int, int], str, tuple[str, ...]]]:
    """Return a link for each pair, in some topologies second ones beside, and ducts of several."""
    links = [(pair, "") for pair in pairs]
    if random.random() < PARALLEL_SHARE:
        links += [(pair, "beside") for pair in pairs if random.random() < BESIDE_SHARE]
    ducts: dict[tuple[tuple[int, int], str], tuple[str, ...]] = {}
    if random.random() < RISKS_SHARE:
        for number in range(random.randint(1, DUCTS_MAX)):
            for link in random.sample(links, min(len(links), random.randint(2, DUCT_LINKS_MAX))):
                ducts[link] = (*ducts.get(link, ()), f"duct-{number}")
    return [(pair, name, ducts.get((pair, name), ())) for pair, name in links]


def _near(pairs: list[tuple[int, int]], centre: int) -> list[int]:
    """Return the routers around one of them, nearest first."""
    found = [centre]
    for here in found:
        for one, other in pairs:
            if here in (one, other):
                there = other if here == one else one
                if there not in found:
                    found.append(there)
        if len(found) >= NEAR:
            break
    return found[:NEAR]


def _pairs(shape: str, size: int, random: Random) -> list[tuple[int, int]]:
    chain = [(number, number + 1) for number in range(size - 1)]
    if shape == "chain":
        return chain
    ring = [*chain, (0, size - 1)]
    if shape == WAIST:
        half = size // 2
        return sorted({*ring, (0, half - 1), (0, half)} - {(half - 1, half)})
    if shape == "ring":
        return ring
    found = set(ring)
    while len(found) < size + size // 4:
        one, other = sorted(random.sample(range(size), 2))
        found.add((one, other))
    return sorted(found)
