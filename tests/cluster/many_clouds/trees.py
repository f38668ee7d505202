"""Trees of three levels for namespaces, none balanced: four clouds; the source's six and one."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.tree_plan import BorderLink, CloudPlan, TreePlan, plan_tree

LATENCY_US: Final = 1_000


def twin_cloud(name: str) -> CloudPlan:
    """Two edge routers that are borders as well, with a channel each way between them."""
    routers = tuple(Router(f"{name}/r{at}", RouterRole.EDGE) for at in range(2))
    one, other = (router.name for router in routers)
    channels = (
        EventChannel(ChannelId(1), one, other, latency_us=LATENCY_US),
        EventChannel(ChannelId(2), other, one, latency_us=LATENCY_US),
    )
    return CloudPlan(name, routers, channels, edges=(one, other), borders=(one, other))


def lone_cloud(name: str) -> CloudPlan:
    router = Router(f"{name}/r0", RouterRole.EDGE)
    return CloudPlan(name, (router,), (), edges=(router.name,), borders=(router.name,))


def unbalanced() -> TreePlan:
    """Two ways without a common router from any cloud to any other.

    root ┬ west ┬ a      a ═ b ═ c ═ d, a channel of each of two ways between neighbours;
         │      └ b      a–b is west's own, the others are root's
         ├ c
         └ south ─ d
    """
    names = ("a", "b", "c", "d")
    links = [
        BorderLink(f"{one}/r{at}", f"{other}/r{at}", LATENCY_US)
        for one, other in pairwise(names)
        for at in range(2)
    ]
    children = {"root": ("west", "c", "south"), "west": ("a", "b"), "south": ("d",)}
    return plan_tree(children, {name: twin_cloud(name) for name in names}, links)


GOLDEN_WAYS: Final = ("ab", "bc", "ca", "ed", "fa", "be", "cd", "ce", "ec", "dc")
OTHER_WAY: Final = "dg"


def six_clouds_and_one() -> TreePlan:
    """One-way channels as in S0 §5.4.2; g stands right below the root and is reached from d alone.

    root ┬ q0 ─ a, b, c
         ├ q1 ─ d, e, f
         └ g
    """
    children = {"root": ("q0", "q1", "g"), "q0": ("a", "b", "c"), "q1": ("d", "e", "f")}
    ways = (*GOLDEN_WAYS, OTHER_WAY)
    pairs = {tuple(sorted(way)) for way in ways}
    links = [BorderLink(f"{one}/r0", f"{other}/r0", LATENCY_US) for one, other in sorted(pairs)]
    both = plan_tree(children, {name: lone_cloud(name) for name in "abcdefg"}, links)
    wanted = {(f"{way[0]}/r0", f"{way[1]}/r0") for way in ways}
    brokers = {
        name: replace(
            broker,
            channels=tuple(
                one for one in broker.channels if (one.from_router, one.to_router) in wanted
            ),
        )
        for name, broker in both.brokers.items()
    }
    return TreePlan(brokers, both.clouds)
