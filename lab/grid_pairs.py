"""Pairs of clouds far from each other in a national grid, and the brokers between them."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import TYPE_CHECKING, Final

from lab.errors import LabError
from lab.tree_plan import cloud_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from lab.national_grid import NationalGrid
    from lab.tree_plan import TreePlan

CLOUDS_MAX: Final = 24
"""Most clouds on the shortest way of a pair; a contract may use more, but not many more."""
TRIES: Final = 100


def far_pairs(grid: NationalGrid, count: int, seed: int = 1) -> list[tuple[str, str]]:
    """Draw distinct pairs of clouds over the whole grid; leave out pairs whose way is too long."""
    random = Random(seed)
    clouds = list(grid.plan.clouds)
    near = _joined(grid.plan)
    found: dict[tuple[str, str], None] = {}
    for _ in range(TRIES * count):
        if len(found) == count:
            break
        one, other = random.sample(clouds, 2)
        if 0 < _distance(near, one, other) < CLOUDS_MAX:
            found[one, other] = None
    if not found:
        raise LabError("no two clouds of the grid are joined", hint="take a grid of one piece")
    return list(found)


def brokers_on(plan: TreePlan, clouds: Iterable[str]) -> set[str]:
    """Return the brokers that take part in a contract over these clouds, up to its owner."""
    way = list(clouds)
    owner = plan.common(way[0], way[-1])
    depth = plan.brokers[owner].depth
    return {broker for cloud in way for broker in plan.scope(cloud)[depth:]}


def _joined(plan: TreePlan) -> dict[str, set[str]]:
    """Return for each cloud the clouds to which it has a channel."""
    near: dict[str, set[str]] = {name: set() for name in plan.clouds}
    for broker in plan.brokers.values():
        for channel in broker.channels:
            near[cloud_of(channel.from_router)].add(cloud_of(channel.to_router))
    return near


def _distance(near: dict[str, set[str]], one: str, other: str) -> int:
    """Return the number of channels between clouds on the shortest way, or -1 if there is none."""
    steps, front = {one: 0}, deque([one])
    while front and other not in steps:
        here = front.popleft()
        for cloud in sorted(near[here]):
            if cloud not in steps:
                steps[cloud] = steps[here] + 1
                front.append(cloud)
    return steps.get(other, -1)
