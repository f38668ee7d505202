"""Shapes of simulated trees: brokers and their children, small clouds, and channels between them.

Made once for each outline and shared by all seeds, since they never change. Brokers that a tree
does not name are leaves and have the names of their clouds. Some trees are drawn: "uneven" ones of
up to nine clouds, and "vast" ones of more than thirty, whose neighbours often have one border only.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.tree_plan import BorderLink, CloudPlan, TreePlan, plan_tree

Children = dict[str, tuple[str, ...]]
"""Children of each broker; a broker without children is a leaf."""

TREES: Final[dict[str, Children]] = {
    "alone": {},
    "pair": {"root": ("c1", "c2")},
    "star": {"root": ("c1", "c2", "c3", "c4")},
    "deep": {"root": ("east", "west"), "east": ("c1", "c2"), "west": ("c3", "c4")},
    "unbalanced": {
        "root": ("c1", "east"),
        "east": ("c2", "south", "c5"),
        "south": ("c3", "c4"),
    },
    "leaning": {"root": ("east", "c4"), "east": ("south", "c3"), "south": ("c1", "c2")},
    "braid": {"root": ("c1", "c2", "c3")},
}
BRAID: Final = "braid"
"""Three clouds in a row; both channels from the first end at one border of the second, which may
join each of them to either of its ways on: other ones than its parent has planned."""
BRAIDED: Final = (("c1/b0", "c2/b0"), ("c1/b1", "c2/b0"), ("c2/b0", "c3/b0"), ("c2/b1", "c3/b1"))
DRAWN: Final = {"uneven": (3, 9), "vast": (30, 34)}
"""Kinds of trees whose shape is drawn, with their fewest and most clouds."""
DEPTH_MAX: Final = 4
CHILDREN_MAX: Final = 4
ONE_BORDER_SHARE: Final = 0.5
ACROSS_SHARE: Final = 0.3
VARIANTS: Final = 3
DRAWN_VARIANTS: Final = {"uneven": 8, "vast": 1}
BANDWIDTHS: Final = {"ample": (0, 400_000), "tight": (12_000, 24_000), "scarce": (12_000,)}
BORDER_BANDWIDTHS: Final = {
    "ample": BANDWIDTHS["ample"],
    "tight": (3_000, 12_000),
    "scarce": (4_000,),
}
"""Bandwidths between clouds: in a tight tree one variable fits, and not always two."""
EVENTS_PER_S: Final = {"ample": (1_000_000,), "tight": (800, 5_000), "scarce": (5_000,)}
LATENCIES_US: Final = (100, 400, 900)
EXTRA_LINKS: Final = (("e0", "i0"), ("i0", "b1"), ("e1", "i0"), ("i0", "b0"), ("b0", "b1"))
LADDER: Final = (("e0", "b0"), ("e1", "b1"), ("e0", "e1"))
RING_SHARE: Final = 0.6
PARALLEL_SHARE: Final = 0.4
"""Share of the trees with links beside each other between clouds, and of the links in two."""
BESIDE_SHARE: Final = 0.3
RISKS_SHARE: Final = 0.4
"""Share of the trees in which so many links between clouds run a common risk."""
DUCT_LINKS: Final = 2


@dataclass(frozen=True, slots=True)
class Outline:
    """Parameters of a tree."""

    tree: str
    room: str
    variant: int


@lru_cache(maxsize=256)
def tree_plan(outline: Outline) -> TreePlan:
    """Return the plan of an outline; equal outlines give equal plans."""
    random = Random(f"tree {outline.tree}/{outline.room}/{outline.variant}")
    is_drawn = outline.tree in DRAWN
    children = _drawn(outline.tree, random) if is_drawn else TREES[outline.tree]
    below = {child for some in children.values() for child in some}
    leaves = sorted(below - children.keys()) or ["c1"]
    clouds = {name: _cloud(name, outline.room, random) for name in leaves}
    links = _drawn_links if is_drawn else _border_links
    if outline.tree == BRAID:
        links = _braided_links
    found = links(leaves, outline.room, random)
    drawn = Random(f"links of {outline.tree}/{outline.room}/{outline.variant}")
    return plan_tree(children, clouds, _with_ducts(_with_links_beside(found, drawn), drawn))


def _with_links_beside(links: list[BorderLink], random: Random) -> list[BorderLink]:
    """Add second links beside some, in some trees."""
    if not links or random.random() >= PARALLEL_SHARE:
        return links
    return links + [
        replace(link, name="beside", latency_us=random.choice(LATENCIES_US))
        for link in links
        if random.random() < BESIDE_SHARE
    ]


def _with_ducts(links: list[BorderLink], random: Random) -> list[BorderLink]:
    """Lead some links through a common duct, in some trees."""
    if len(links) < DUCT_LINKS or random.random() >= RISKS_SHARE:
        return links
    among = set(random.sample(range(len(links)), DUCT_LINKS))
    return [
        replace(link, risks=("duct-7",)) if at in among else link for at, link in enumerate(links)
    ]


def _drawn(kind: str, random: Random) -> Children:
    """Draw a tree: every broker above clouds has children enough, and some have many below."""
    children: Children = {}
    names = [f"c{number}" for number in range(1, random.randint(*DRAWN[kind]) + 1)]
    open_ = [("root", names, 0)]
    while open_:
        broker, leaves, depth = open_.pop(0)
        below = []
        for number, group in enumerate(_groups(leaves, depth, random)):
            name = group[0] if len(group) == 1 else f"{broker}-{number}"
            below.append(name)
            if len(group) > 1:
                open_.append((name, group, depth + 1))
        children[broker] = tuple(below)
    return children


def _groups(leaves: list[str], depth: int, random: Random) -> list[list[str]]:
    """Divide the clouds below a broker among its children, unevenly."""
    if depth == DEPTH_MAX - 1:
        return [[leaf] for leaf in leaves]
    count = random.randint(2, min(CHILDREN_MAX, len(leaves)))
    cuts = sorted(random.sample(range(1, len(leaves)), count - 1))
    return [leaves[first:end] for first, end in pairwise([0, *cuts, len(leaves)])]


def _drawn_links(leaves: list[str], room: str, random: Random) -> list[BorderLink]:
    """Join every cloud to an earlier one, and some to others, by one border or by two."""
    joined = [(random.choice(leaves[:at]), leaves[at]) for at in range(1, len(leaves))]
    for at in range(2, len(leaves)):
        pair = random.choice(leaves[:at]), leaves[at]
        if random.random() < ACROSS_SHARE and pair not in joined:
            joined.append(pair)
    found = []
    for one, other in joined:
        is_single = random.random() < ONE_BORDER_SHARE
        borders = (random.choice(("b0", "b1")),) if is_single else ("b0", "b1")
        found += [_border_link(one, other, border, room, random) for border in borders]
    return found


def _border_link(one: str, other: str, border: str, room: str, random: Random) -> BorderLink:
    return _link(f"{one}/{border}", f"{other}/{border}", room, random)


def _braided_links(leaves: list[str], room: str, random: Random) -> list[BorderLink]:
    del leaves
    return [_link(one, other, room, random) for one, other in BRAIDED]


def _link(one: str, other: str, room: str, random: Random) -> BorderLink:
    return BorderLink(
        one,
        other,
        latency_us=random.choice(LATENCIES_US),
        bandwidth_bytes_per_s=random.choice(BORDER_BANDWIDTHS[room]),
    )


def _cloud(name: str, room: str, random: Random) -> CloudPlan:
    links = [*LADDER, *random.sample(EXTRA_LINKS, random.randint(1, len(EXTRA_LINKS)))]
    names = sorted({end for link in links for end in link})
    roles = {"e": RouterRole.EDGE, "i": RouterRole.INNER, "b": RouterRole.BORDER}
    bandwidth = random.choice(BANDWIDTHS[room])
    ways = [way for one, other in links for way in ((one, other), (other, one))]
    return CloudPlan(
        name,
        routers=tuple(
            Router(
                f"{name}/{router}",
                roles[router[0]],
                events_per_s_max=random.choice(EVENTS_PER_S[room]),
            )
            for router in names
        ),
        channels=tuple(
            EventChannel(
                ChannelId(number),
                f"{name}/{one}",
                f"{name}/{other}",
                bandwidth_bytes_per_s=bandwidth,
                latency_us=random.choice(LATENCIES_US),
            )
            for number, (one, other) in enumerate(ways, start=1)
        ),
        edges=(f"{name}/e0", f"{name}/e1"),
        borders=(f"{name}/b0", f"{name}/b1"),
    )


def _border_links(leaves: list[str], room: str, random: Random) -> list[BorderLink]:
    """Join neighbouring clouds twice; in most trees the last cloud with the first, too."""
    joined = list(pairwise(leaves))
    if len(leaves) > 2 and random.random() < RING_SHARE:  # noqa: PLR2004 — two are joined already.
        joined.append((leaves[-1], leaves[0]))
    return [
        _border_link(one, other, border, room, random)
        for one, other in joined
        for border in ("b0", "b1")
    ]
