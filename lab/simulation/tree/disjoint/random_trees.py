"""Random trees of clouds whose ways often share border routers, single channels, or ducts.

All wires have room, so that nothing but the wires and the latency asked for bounds a contract. Some
channels lie beside others between the same two routers. Some run a duct with others that leave the
same router, or reach it: a path without a circle runs such a duct once, so the oracle stays a flow.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
from random import Random
from typing import Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.simulation.swarm import EndPointPlan
from lab.tree_plan import BorderLink, CloudPlan, TreePlan, plan_tree

CHILDREN: Final = (2, 2, 3, 3, 4)
LEVELS_MAX: Final = 3
BROKER_SHARE: Final = 0.3
"""Share of children below which there are clouds again."""
HUB_SHARE: Final = 0.4
"""Share of clouds with one border router for all channels to other clouds."""
EDGE_BORDER_SHARE: Final = 0.1
"""Share of clouds in which an edge router is a border router too."""
ONE_WAY_SHARE: Final = 0.1
PARALLEL_SHARE: Final = 0.15
"""Share of links that have another one beside them, between the same two routers."""
DUCT_SHARE: Final = 0.25
"""Share of clouds, and of brokers with channels, in which some channels run one duct."""
DUCT_CHANNELS_MAX: Final = 3
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
    plan = plan_tree(children, clouds, links)
    ducts = Random(f"disjoint ducts {seed}")
    return TreePlan(
        {
            name: replace(found, channels=_with_duct(name, found.channels, ducts))
            for name, found in plan.brokers.items()
        },
        {
            name: replace(found, channels=_with_duct(name, found.channels, ducts))
            for name, found in plan.clouds.items()
        },
    )


def _with_duct(
    owner: str, channels: tuple[EventChannel, ...], random: Random
) -> tuple[EventChannel, ...]:
    """Return the channels, some of which share a duct where they leave or reach one router."""
    if not channels or random.random() >= DUCT_SHARE:
        return channels
    one, is_leaving = random.choice(channels), random.random() < 1 / 2
    beside = [
        found.channel_id
        for found in channels
        if (
            found.from_router == one.from_router if is_leaving else found.to_router == one.to_router
        )
    ]
    random.shuffle(beside)
    inside = set(beside[: random.randint(2, DUCT_CHANNELS_MAX)])
    duct = duct_name(owner, is_leaving=is_leaving)
    return tuple(
        replace(found, risks=(duct,)) if found.channel_id in inside else found for found in channels
    )


def duct_name(owner: str, *, is_leaving: bool) -> str:
    """Return the name of the duct of some channels that leave one router, or reach it."""
    return f"duct-{owner}-{'out' if is_leaving else 'in'}"


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
    ways = [
        (*way, beside)
        for one, other in sorted(links)
        for beside in _names_beside(random)
        for way in _directions(one, other, random)
    ]
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
                name=beside,
            )
            for number, (one, other, beside) in enumerate(ways, start=1)
        ),
        edges=(f"{name}/e0", f"{name}/e1"),
        borders=tuple(f"{name}/{one}" for one in borders),
    )


def _names_beside(random: Random) -> tuple[str, ...]:
    """Return the names of the links between two routers: mostly of one alone, which has none."""
    return ("", "2") if random.random() < PARALLEL_SHARE else ("",)


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
    found: list[BorderLink] = []
    for one, other in sorted(joined):
        for _ in range(random.choice((1, 2, 2, 3, 4))):
            ends = [
                random.choice(clouds[random.choice(_clouds_below(side, children))].borders)
                for side in (one, other)
            ]
            beside = sum({link.one, link.other} == {*ends} for link in found)
            name = str(beside + 1) if beside else ""
            latency_us = random.choice(LATENCIES_US)
            found.append(BorderLink(ends[0], ends[1], latency_us=latency_us, name=name))
    return found


def _clouds_below(name: str, children: dict[str, tuple[str, ...]]) -> list[str]:
    if name not in children:
        return [name]
    return [cloud for child in children[name] for cloud in _clouds_below(child, children)]
