"""Random trees of clouds whose ways often share border routers or single channels.

All wires have room and all requests have time, so that nothing but the wires bounds a contract.
"""

from __future__ import annotations

from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.simulation.swarm import EndPointPlan
from lab.tree_plan import BorderLink, CloudPlan, plan_tree

if TYPE_CHECKING:
    from lab.tree_plan import TreePlan

CHILDREN: Final = (2, 2, 3, 3, 4)
LEVELS_MAX: Final = 3
BROKER_SHARE: Final = 0.3
"""Share of children below which there are clouds again."""
HUB_SHARE: Final = 0.4
"""Share of clouds with one border router for all channels to other clouds."""
EDGE_BORDER_SHARE: Final = 0.1
"""Share of clouds in which an edge router is a border router too."""
ONE_WAY_SHARE: Final = 0.1
LATENCIES_US: Final = (100, 400, 900)
ROLES: Final = {"e": RouterRole.EDGE, "i": RouterRole.INNER, "b": RouterRole.BORDER}


def random_tree(seed: int) -> TreePlan:
    """Return the tree of a seed: clouds of two to nine routers, in one to three levels."""
    random = Random(f"disjoint tree {seed}")
    children: dict[str, tuple[str, ...]] = {}
    _grow("root", 1, children, random)
    below = [child for some in children.values() for child in some]
    clouds = {name: _cloud(name, random) for name in below if name not in children}
    links = [
        link for name, some in children.items() for link in _links(some, children, clouds, random)
    ]
    return plan_tree(children, clouds, dict.fromkeys(links))


def end_points(seed: int, plan: TreePlan) -> tuple[EndPointPlan, ...]:
    """Return one end-point a cloud, on one edge or on both."""
    random = Random(f"disjoint end-points {seed}")
    return tuple(
        EndPointPlan(f"{cloud.name}/z0/p", tuple(random.sample(cloud.edges, random.choice((1, 2)))))
        for cloud in plan.clouds.values()
    )


def _grow(name: str, level: int, children: dict[str, tuple[str, ...]], random: Random) -> None:
    count = random.choice(CHILDREN)
    prefix = "" if name == "root" else name
    some = tuple(f"{prefix}{letter}" for letter in "abcd"[:count])
    children[name] = some
    for child in some:
        if level < LEVELS_MAX and random.random() < BROKER_SHARE:
            _grow(child, level + 1, children, random)


def _cloud(name: str, random: Random) -> CloudPlan:
    inner = [f"i{at}" for at in range(random.choice((0, 1, 1, 2, 3)))]
    borders = [
        f"b{at}" for at in range(1 if random.random() < HUB_SHARE else random.choice((2, 3, 4)))
    ]
    routers = ["e0", "e1", *inner, *borders]
    random.shuffle(routers)
    links = {(random.choice(routers[:at]), routers[at]) for at in range(1, len(routers))}
    some = list(combinations(routers, 2))
    links.update(random.sample(some, min(len(some), random.randint(0, 2 * len(routers)))))
    ways = dict.fromkeys(
        way for one, other in sorted(links) for way in _directions(one, other, random)
    )
    if random.random() < EDGE_BORDER_SHARE:
        borders.append("e0")
    return CloudPlan(
        name,
        routers=tuple(Router(f"{name}/{one}", ROLES[one[0]]) for one in sorted(routers)),
        channels=tuple(
            EventChannel(
                ChannelId(number),
                f"{name}/{one}",
                f"{name}/{other}",
                latency_us=random.choice(LATENCIES_US),
            )
            for number, (one, other) in enumerate(ways, start=1)
        ),
        edges=(f"{name}/e0", f"{name}/e1"),
        borders=tuple(f"{name}/{one}" for one in borders),
    )


def _directions(one: str, other: str, random: Random) -> list[tuple[str, str]]:
    both = [(one, other), (other, one)]
    return [random.choice(both)] if random.random() < ONE_WAY_SHARE else both


def _links(
    siblings: tuple[str, ...],
    children: dict[str, tuple[str, ...]],
    clouds: dict[str, CloudPlan],
    random: Random,
) -> list[BorderLink]:
    """Join the children of one broker: each to one before it, and some to others."""
    joined = {(random.choice(siblings[:at]), siblings[at]) for at in range(1, len(siblings))}
    joined.update(pair for pair in combinations(siblings, 2) if random.random() < 1 / 2)
    found = {}
    for one, other in sorted(joined):
        for _ in range(random.choice((1, 2, 2, 3, 4))):
            ends = [
                random.choice(clouds[random.choice(_clouds_below(side, children))].borders)
                for side in (one, other)
            ]
            link = BorderLink(ends[0], ends[1], latency_us=random.choice(LATENCIES_US))
            found[ends[0], ends[1]] = link
    return list(found.values())


def _clouds_below(name: str, children: dict[str, tuple[str, ...]]) -> list[str]:
    if name not in children:
        return [name]
    return [cloud for child in children[name] for cloud in _clouds_below(child, children)]
