"""Grids in which one variable floods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.core.rows import Flood
from tests.protocol.grids import Grid, MakeCore, Way, periodic

if TYPE_CHECKING:
    import random

PERIOD_MS = 10


def flood_everywhere(grid: Grid, scope_level: int) -> None:
    for core in grid.cores.values():
        core.commit([periodic(1, PERIOD_MS, floods=(Flood(scope_level),))])


def two_way_grid(make_core: MakeCore, rng: random.Random) -> Grid:
    """A random connected graph of twelve routers; every link is a channel in each direction."""
    names = [f"r{i:02}" for i in range(12)]
    links = {(names[rng.randrange(i)], names[i]) for i in range(1, 12)}
    while len(links) < 20:
        start, end = sorted(rng.sample(names, 2))
        links.add((start, end))
    ordered = sorted(links)
    return Grid(make_core, [way for a, b in ordered for way in (Way(a, b), Way(b, a))])


def directed_grid(make_core: MakeCore, rng: random.Random) -> Grid:
    """Random one-way channels, no two of them back and forth: every channel can carry a copy."""
    names = [f"r{i:02}" for i in range(14)]
    ways: dict[frozenset[str], Way] = {}
    for _ in range(rng.randrange(14, 40)):
        start, end = rng.sample(names, 2)
        ways.setdefault(frozenset((start, end)), Way(start, end, rng.randrange(3)))
    ways.setdefault(frozenset(("r00", "r01")), Way("r00", "r01", 2))
    return Grid(make_core, list(ways.values()))


def reached_on_paper(grid: Grid, start: str, scope_level: int) -> set[str]:
    """Routers to which channels of the scope lead from the publisher's, which is one of them."""
    reached, found = {start}, [start]
    while found:
        name = found.pop()
        ends = {way.end for way in grid.ways if way.start == name and way.level >= scope_level}
        found += sorted(ends - reached)
        reached |= ends
    return reached


def channels_in_scope(grid: Grid, reached: set[str], scope_level: int) -> list[tuple[str, str]]:
    """Channels of the scope that leave a reached router, whatever they carried."""
    return [
        (way.start, way.end)
        for way in grid.ways
        if way.level >= scope_level and way.start in reached
    ]
