"""Plans of national grids: thousands of routers in clouds, a tree of brokers above, PMUs below.

Clouds are real networks of the topohub collection; `lab/case_grid.py` cuts a power case instead.
Brokers with the same parent form a ring, and neighbours in the ring are joined at two clouds, so
that every two clouds have two ways that share no cloud's border. The same size and seed give the
same grid.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.model.cloud import EventChannel, Router, RouterRole
from gridstat.model.identifiers import ChannelId
from lab.errors import LabError
from lab.topologies import US_PER_KM, random_topology, real, real_keys
from lab.tree_plan import BorderLink, CloudPlan, TreePlan, plan_tree

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

BANDWIDTH_BYTES_PER_S: Final = 1_250_000_000
"""Ten gigabits a second between substations and between clouds."""
EVENTS_PER_S_MAX: Final = 10_000_000
QUEUE_EVENTS_MAX: Final = 1 << 20
BORDER_LATENCY_US: Final = 500
EDGES_SHARE: Final = 2
"""Every second router of a cloud serves end-points."""
BORDERS: Final = 4
"""Border routers of a cloud, if it has as many; channels to others are spread over them."""
REAL_SIZES: Final = 12
"""Number of real networks that serve as clouds of one grid."""

Link = tuple[int, int, float]


@dataclass(frozen=True, slots=True)
class GridSize:
    """Size of a grid: `levels` of brokers from root to leaf, `branching` children of each.

    A `branching` of 0 takes as many children as are needed.
    """

    clouds: int
    routers_per_cloud: int = 20
    pmus_per_cloud: int = 20
    levels: int = 3
    branching: int = 0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Pmu:
    """A phasor measurement unit: its name, and the two edge routers to which it is attached."""

    name: str
    edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NationalGrid:
    """Plan of a national grid, with `pmus` by cloud."""

    plan: TreePlan
    pmus: dict[str, tuple[Pmu, ...]]

    @property
    def router_count(self) -> int:
        return sum(len(cloud.routers) for cloud in self.plan.clouds.values())

    def neighbours(self, level: int) -> list[tuple[str, str]]:
        """Return adjacent pairs of clouds whose lowest common broker is at this depth."""
        found = []
        for broker in self.plan.brokers.values():
            if broker.depth == level and len(broker.children) > 1:
                below = [self._clouds_below(child) for child in broker.children]
                for one, other in pairwise(below):
                    found += list(zip(one, other, strict=False))
        return found

    def _clouds_below(self, name: str) -> list[str]:
        children = self.plan.brokers[name].children
        return [cloud for child in children for cloud in self._clouds_below(child)] or [name]


def national_grid(size: GridSize) -> NationalGrid:
    """Return a grid whose clouds are real networks, under a tree of this size."""
    names = [f"c{number}" for number in range(size.clouds)]
    clouds = {}
    for number, name in enumerate(names):
        routers, links = _network(size.routers_per_cloud, size.seed, number)
        clouds[name] = cloud_plan(name, routers, links)
    children = broker_tree(names, size.levels, size.branching)
    plan = plan_tree(children, clouds, _ring_links(children, clouds))
    return with_pmus(plan, size.pmus_per_cloud)


def broker_tree(
    clouds: Sequence[str], levels: int, branching: int = 0
) -> dict[str, tuple[str, ...]]:
    """Return the children of each broker; neighbouring clouds have one parent, up to the root."""
    found: dict[str, tuple[str, ...]] = {}
    below = list(clouds)
    for names in levels_of(len(clouds), levels, branching):
        groups = len(names)
        found.update(
            (name, tuple(below[len(below) * at // groups : len(below) * (at + 1) // groups]))
            for at, name in enumerate(names)
        )
        below = names
    return dict(reversed(found.items()))


def levels_of(clouds: int, levels: int, branching: int = 0) -> list[list[str]]:
    """Return the names of the brokers above so many clouds, lowest level first, the root last."""
    if levels < 2 and clouds > 1:  # noqa: PLR2004 — a lone leaf is its own tree.
        raise LabError("several clouds need two levels at least", hint="give levels = 2 or more")
    width = max(2, branching or round(clouds ** (1 / max(1, levels - 1))))
    found, below = [], clouds
    for level in range(levels - 1, 1, -1):
        below = max(1, -(-below // width))
        found.append([f"b{level}x{number}" for number in range(below)])
    return [*found, ["root"]] if levels > 1 else []


def _ring_links(
    children: Mapping[str, tuple[str, ...]], clouds: Mapping[str, CloudPlan]
) -> list[BorderLink]:
    """Join siblings in a ring, each pair at the first and at the last cloud of both."""
    taken = dict.fromkeys(clouds, 0)
    links: list[BorderLink] = []

    def border(cloud: str) -> str:
        taken[cloud] += 1
        borders = clouds[cloud].borders
        return borders[taken[cloud] % len(borders)]

    for below in children.values():
        pairs = list(pairwise(below))
        if len(below) > 2:  # noqa: PLR2004 — two are joined already.
            pairs.append((below[-1], below[0]))
        for one, other in pairs:
            first, last = _ends(one, children), _ends(other, children)
            links += [
                BorderLink(
                    border(first[place]),
                    border(last[place]),
                    latency_us=BORDER_LATENCY_US,
                    bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
                    queue_events_max=QUEUE_EVENTS_MAX,
                )
                for place in (0, 1)
            ]
    return links


def _ends(name: str, children: Mapping[str, tuple[str, ...]]) -> tuple[str, str]:
    """Return the first and the last cloud below a broker; a leaf returns itself twice."""
    first = last = name
    while first in children:
        first = children[first][0]
    while last in children:
        last = children[last][-1]
    return first, last


def _network(routers: int, seed: int, number: int) -> tuple[list[int], list[Link]]:
    """Return a real network of about this size, or a small world if there is none."""
    random = Random(f"{routers}/{seed}/{number}")
    keys = _keys(routers)
    if keys:
        found = real(random.choice(keys), seed)
    else:
        found = random_topology("small-world", routers, random.randrange(1 << 16))
    numbers = {name: at for at, name in enumerate(found.routers)}
    links = {
        (numbers[arc.from_router], numbers[arc.to_router]): arc.latency_us / US_PER_KM
        for arc in found.arcs
        if numbers[arc.from_router] < numbers[arc.to_router]
    }
    return list(numbers.values()), [(*ends, km) for ends, km in sorted(links.items())]


@lru_cache(maxsize=16)
def _keys(routers: int) -> tuple[str, ...]:
    return tuple(real_keys(routers, routers)[:REAL_SIZES])


def cloud_plan(
    name: str, routers: Sequence[int], links: Iterable[Link], borders: Iterable[int] = ()
) -> CloudPlan:
    """Return a cloud with these borders, or with some chosen; half of the others are edges."""
    step = max(1, len(routers) // BORDERS)
    chosen = set(borders) & set(routers) or set(routers[1::step][:BORDERS] or routers)
    others = [number for number in routers if number not in chosen] or list(routers)
    edges = set(others[::EDGES_SHARE])
    roles = {
        number: RouterRole.EDGE
        if number in edges
        else RouterRole.BORDER
        if number in chosen
        else RouterRole.INNER
        for number in routers
    }
    ways = [
        (f"{name}/r{sender}", f"{name}/r{receiver}", latency_us_of(km))
        for one, other, km in links
        for sender, receiver in ((one, other), (other, one))
    ]
    return CloudPlan(
        name,
        routers=tuple(
            Router(f"{name}/r{number}", role, events_per_s_max=EVENTS_PER_S_MAX)
            for number, role in roles.items()
        ),
        channels=tuple(
            EventChannel(
                ChannelId(number),
                sender,
                receiver,
                bandwidth_bytes_per_s=BANDWIDTH_BYTES_PER_S,
                latency_us=latency_us,
                queue_events_max=QUEUE_EVENTS_MAX,
            )
            for number, (sender, receiver, latency_us) in enumerate(ways, start=1)
        ),
        edges=tuple(f"{name}/r{number}" for number in sorted(edges)),
        borders=tuple(f"{name}/r{number}" for number in sorted(chosen)),
    )


def with_pmus(plan: TreePlan, each: int) -> NationalGrid:
    """Add PMUs to the edges in turn, each attached to two of them if there are two."""
    pmus = {}
    for name, cloud in plan.clouds.items():
        edges = cloud.edges
        pmus[name] = tuple(
            Pmu(
                f"{name}/s{number}/pmu",
                tuple(
                    dict.fromkeys((edges[number % len(edges)], edges[(number + 1) % len(edges)]))
                ),
            )
            for number in range(each)
        )
    return NationalGrid(plan, pmus)


def latency_us_of(length_km: float) -> int:
    return 1 + round(US_PER_KM * length_km)
