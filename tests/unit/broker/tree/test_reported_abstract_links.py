"""Abstract links that a broker in the middle reports to its parent, between its borders."""

from __future__ import annotations

import random
from itertools import permutations
from typing import TYPE_CHECKING

from gridstat.broker.tree import border_graph
from gridstat.net.command.tree_messages import AbstractLink, AbstractLinksReported, WantBorders
from tests.unit.broker.tree.scripted_root import below_scripted_root

if TYPE_CHECKING:
    import pytest

    from tests.unit.broker.tree.tree_world import TreeWorld

SIDE = 8
INSIDE = ("w0", "w1")
CLOUDS = ("c1", "c2")
BORDERS = tuple(f"{cloud}/r{at}" for cloud in CLOUDS for at in range(SIDE))
CHANNEL_US = 500

Ways = dict[tuple[str, str], tuple[int, int]]
"""Latency and free bytes a second of each step."""


def west() -> TreeWorld:
    """Return a broker whose parent asks for all these borders."""
    world, _ = below_scripted_root()
    world.post("root", "west", WantBorders(term=1, routers=BORDERS))
    world.rest()
    return world


def tell(world: TreeWorld) -> Ways:
    """Report the abstract links of each cloud."""
    choice = random.Random(1)
    ways: Ways = {}
    for cloud in CLOUDS:
        ends = [f"{cloud}/{end}" for end in INSIDE] + [
            one for one in BORDERS if one.startswith(cloud)
        ]
        own = {
            pair: (choice.randrange(100, 1 << 20), choice.randrange(1_000_000))
            for pair in permutations(ends, 2)
        }
        told = [
            AbstractLink(
                from_router=one, to_router=other, latency_us=us, free_bytes_per_s={0: free}
            )
            for (one, other), (us, free) in own.items()
        ]
        world.post(cloud, "west", AbstractLinksReported(term=1, abstract_links=tuple(told)))
        ways |= own
    world.settle()
    return ways


def last_told(world: TreeWorld) -> dict[tuple[str, str], AbstractLink]:
    told = [
        word
        for to, _, word in world.sent
        if to == "west" and isinstance(word, AbstractLinksReported)
    ]
    return {(one.from_router, one.to_router): one for one in told[-1].abstract_links}


def nearest(ways: Ways, routers: tuple[str, ...]) -> Ways:
    """All pairs at once; no two ways of these are as long as each other."""
    found = dict(ways)
    for over in routers:
        for one, other in permutations(routers, 2):
            if (one, over) in found and (over, other) in found:
                first, second = found[one, over], found[over, other]
                joined = (first[0] + second[0], min(first[1], second[1]))
                found[one, other] = min(found.get((one, other), joined), joined)
    return found


def test_what_is_told_is_the_nearest_way_and_the_least_that_is_free_on_it() -> None:
    world = west()
    ways = tell(world)
    world.rest()
    for end in INSIDE:  # No bandwidth is declared of these, so that nothing bounds what is free.
        for one, other in (CLOUDS, CLOUDS[::-1]):
            ways[f"{one}/{end}", f"{other}/{end}"] = (CHANNEL_US, 1 << 40)
    routers = (*BORDERS, *(f"{cloud}/{end}" for cloud in CLOUDS for end in INSIDE))
    expected = nearest(ways, routers)
    told = last_told(world)
    assert set(told) == set(permutations(BORDERS, 2))
    for pair, found in told.items():
        assert (found.latency_us, found.free_bytes_per_s) == (
            expected[pair][0],
            {0: expected[pair][1]},
        )


def test_many_borders_are_searched_in_batches_and_reported_when_all_are_done(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = west()
    monkeypatch.setattr(border_graph, "EDGES_PER_CALL_MAX", 1, raising=False)
    tell(world)
    step_ns = world.brokers["west"].settings.abstract_links_after_ns
    world.sent.clear()
    for _ in range(len(BORDERS) - 1):
        world.advance(step_ns)
        assert not any(isinstance(word, AbstractLinksReported) for _, _, word in world.sent)
    world.advance(step_ns)
    assert set(last_told(world)) == set(permutations(BORDERS, 2))
