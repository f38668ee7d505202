"""Shapes of the clouds that are measured: two rings with edges around them, and a chain.

Names are full (`c1/e0`), and channels are numbered from 1, as in a broker's file.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from gridstat.console.config.cloud_file import Topology
from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId

if TYPE_CHECKING:
    from collections.abc import Iterable

CLOUD = "c1"
BANDWIDTH_BYTES_PER_S = 125_000_000
"""A gigabit a second: declared, so that admission counts it and channels are paced."""

QUEUE_EVENTS_MAX = 16_384
EVENTS_PER_S_MAX = 1_000_000


def edge_name(number: int) -> str:
    return f"{CLOUD}/e{number}"


def two_rings(edges: int, ring: int, *, bandwidth: int = BANDWIDTH_BYTES_PER_S) -> Topology:
    """Return two rings of inner routers with every edge router on both, for two disjoint ways.

    10 edges around two rings of 5 are a cloud of 20 routers and 60 channels, in which 3 to 5
    routers lie on a path.
    """
    assert ring >= 1
    links: list[tuple[str, str]] = []
    for letter in "ns":
        links += list(pairwise(f"{letter}{at}" for at in range(ring)))
        if ring > 2:  # Two routers are joined already, and one is not joined to itself.
            links.append((f"{letter}{ring - 1}", f"{letter}0"))
        links += [(f"e{number}", f"{letter}{number % ring}") for number in range(edges)]
    return _topology(
        [f"e{number}" for number in range(edges)],
        [f"{letter}{at}" for letter in "ns" for at in range(ring)],
        links,
        bandwidth,
    )


def chain(routers: int, *, bandwidth: int = 0) -> Topology:
    """Return routers in a row; the first and the last are edges, perhaps the same one."""
    assert routers >= 1
    names = [f"e{at}" if at in (0, routers - 1) else f"i{at}" for at in range(routers)]
    edges = [name for name in names if name.startswith("e")]
    inner = [name for name in names if name.startswith("i")]
    return _topology(edges, inner, list(pairwise(names)), bandwidth)


def line(routers: int, *, bandwidth: int = 0) -> Topology:
    """Return edges in a row, so that paths of every length up to this one begin at the first."""
    assert routers >= 1
    names = [f"e{at}" for at in range(routers)]
    return _topology(names, (), list(pairwise(names)), bandwidth)


def _topology(
    edges: Iterable[str], inner: Iterable[str], links: Iterable[tuple[str, str]], bandwidth: int
) -> Topology:
    roles = [(name, RouterRole.EDGE) for name in edges]
    roles += [(name, RouterRole.INNER) for name in inner]
    ways = [way for one, other in links for way in ((one, other), (other, one))]
    return Topology(
        cloud=CLOUD,
        routers=tuple(
            Router(f"{CLOUD}/{name}", role, events_per_s_max=EVENTS_PER_S_MAX)
            for name, role in roles
        ),
        channels=tuple(
            EventChannel(
                ChannelId(number),
                f"{CLOUD}/{one}",
                f"{CLOUD}/{other}",
                bandwidth_bytes_per_s=bandwidth,
                queue_events_max=QUEUE_EVENTS_MAX,
            )
            for number, (one, other) in enumerate(ways, start=1)
        ),
    )
