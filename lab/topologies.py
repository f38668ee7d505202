"""Shapes of clouds for tests and benchmarks: real networks, and random ones of several families.

Every link of a network becomes two event channels. Latency follows the distance in glass fibre; the
cost does not follow the latency, since otherwise the cheapest path would always be the fastest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from importlib.resources import files
from math import hypot
from random import Random
from typing import TYPE_CHECKING, Final

import networkx
import topohub

from gridstat.model.paths import Arc, PathGraph

if TYPE_CHECKING:
    from collections.abc import Iterable

US_PER_KM: Final = 5
"""Light in glass takes about 5 µs a kilometre."""

COST_MAX: Final = 100
ROUTER_LATENCY_US_MAX: Final = 200
COUNTRY_KM: Final = 1_000
"""Width of the square in which random networks lie."""

COLLECTIONS: Final = ("topozoo", "sndlib", "backbone", "gabriel")

REAL: Final = files(topohub) / "data"
"""Data of topohub, read here and not by `topohub.get`, which leaves its file open."""

BESIDE_SHARE: Final = 0.15
"""Share of the links that have another one beside them, in topologies with ducts."""

DUCT_SHARE: Final = 0.2
"""Ducts for each link, the share of those whose links meet, and the most links in one."""
NEAR_SHARE: Final = 0.7
DUCT_LINKS_MAX: Final = 4

FAMILIES: Final = ("waxman", "regular", "scale-free", "small-world", "grid", "uniform")


@dataclass(frozen=True, slots=True)
class Topology:
    """Routers and channels of a cloud; the same key and seed give the same topology."""

    name: str
    arcs: tuple[Arc, ...]
    router_latency_us: dict[str, int]

    @property
    def routers(self) -> list[str]:
        return sorted(self.router_latency_us)

    @property
    def has_ducts(self) -> bool:
        """True if links have named risks in common."""
        return any(len(arc.risks) > 1 for arc in self.arcs)

    @property
    def has_parallels(self) -> bool:
        """True if some links lie beside others, between the same two routers."""
        return len({(arc.from_router, arc.to_router) for arc in self.arcs}) < len(self.arcs)

    def graph(self) -> PathGraph:
        return PathGraph(self.arcs, self.router_latency_us)


def real_keys(routers_min: int, routers_max: int) -> list[str]:
    """Return the keys of the real networks with so many routers."""
    sizes = {
        path.removesuffix(".json"): len(json.loads((REAL / path).read_text())["nodes"])
        for path in _real_files()
    }
    return sorted(key for key, size in sizes.items() if routers_min <= size <= routers_max)


def real(key: str, seed: int) -> Topology:
    """Return a real network; the seed draws costs and router latencies only."""
    found = json.loads((REAL / f"{key}.json").read_text())
    number = {node["id"]: index for index, node in enumerate(found["nodes"])}
    links = [
        (number[edge["source"]], number[edge["target"]], float(edge["dist"]))
        for edge in found["edges"]
    ]
    return _topology(key, len(found["nodes"]), links, Random(seed))


def random_topology(family: str, routers: int, seed: int) -> Topology:
    """Return a random network with routers at random places of a square country."""
    random = Random(f"{family}/{routers}/{seed}")
    places = [(random.random() * COUNTRY_KM, random.random() * COUNTRY_KM) for _ in range(routers)]
    drawn = _drawn(family, routers, random.randrange(1 << 32))
    links = [
        (one, other, hypot(places[one][0] - places[other][0], places[one][1] - places[other][1]))
        for one, other in drawn
    ]
    return _topology(f"{family}/{routers}/{seed}", routers, links, random)


def with_parallels(topology: Topology, random: Random) -> Topology:
    """Return the topology with links beside some others, between the same two routers."""
    arcs = tuple(arc for link in _with_links_beside(topology, random) for arc in link)
    return replace(topology, name=f"{topology.name} with parallels", arcs=arcs)


def _with_links_beside(topology: Topology, random: Random) -> list[tuple[Arc, ...]]:
    """Return all links, those beside others last, each with its channels both ways."""
    links = [topology.arcs[at : at + 2] for at in range(0, len(topology.arcs), 2)]
    number = len(topology.arcs)
    for link in random.sample(links, round(BESIDE_SHARE * len(links))):
        beside = (f"beside {number}",)
        cost = random.randint(1, COST_MAX)
        links.append(
            tuple(
                replace(arc, channel_id=number + at, cost=cost, risks=beside)
                for at, arc in enumerate(link, start=1)
            )
        )
        number += len(link)
    return links


def with_ducts(topology: Topology, random: Random) -> Topology:
    """Return the topology with links beside some others, and with ducts that several links share.

    The links of a duct often lie beside each other: they leave the same router.
    """
    links = _with_links_beside(topology, random)
    ducts: dict[int, tuple[str, ...]] = {}
    for duct in range(max(1, round(DUCT_SHARE * len(links)))):
        first = random.randrange(len(links))
        ends = {links[first][0].from_router, links[first][0].to_router}
        near = [
            at for at, (there, _) in enumerate(links) if ends & {there.from_router, there.to_router}
        ]
        among = near if random.random() < NEAR_SHARE else list(range(len(links)))
        for at in random.sample(among, min(len(among), random.randint(2, DUCT_LINKS_MAX))):
            ducts[at] = (*ducts.get(at, ()), f"duct-{duct}")
    arcs = [
        replace(arc, risks=(*arc.risks, *ducts.get(at, ())))
        for at, link in enumerate(links)
        for arc in link
    ]
    return replace(topology, name=f"{topology.name} with ducts", arcs=tuple(arcs))


def _drawn(family: str, routers: int, seed: int) -> list[tuple[int, int]]:
    match family:
        case "waxman":
            graph = networkx.waxman_graph(
                routers, beta=min(1.0, 16 / routers), alpha=0.3, seed=seed
            )
        case "regular":
            graph = networkx.random_regular_graph(4, routers, seed=seed)
        case "scale-free":
            graph = networkx.barabasi_albert_graph(routers, 2, seed=seed)
        case "small-world":
            graph = networkx.watts_strogatz_graph(routers, 4, 0.3, seed=seed)
        case "grid":
            side = max(2, round(routers**0.5))
            square = networkx.grid_2d_graph(side, -(-routers // side))
            graph = networkx.convert_node_labels_to_integers(square).subgraph(range(routers))
        case "uniform":
            graph = networkx.gnm_random_graph(routers, 2 * routers, seed=seed)
        case _:
            raise ValueError(f"no such family: {family}")
    return sorted((min(link), max(link)) for link in graph.edges)


def _topology(
    name: str, routers: int, links: Iterable[tuple[int, int, float]], random: Random
) -> Topology:
    names = [f"c1/r{number}" for number in range(routers)]
    arcs: list[Arc] = []
    for one, other, distance_km in links:
        if one == other:
            continue
        cost, latency_us = random.randint(1, COST_MAX), 1 + round(US_PER_KM * distance_km)
        link = (f"link {len(arcs) // 2}",)
        for tail, head in ((one, other), (other, one)):
            arcs.append(Arc(len(arcs) + 1, names[tail], names[head], cost, latency_us, link))
    latencies_us = {router: random.randint(0, ROUTER_LATENCY_US_MAX) for router in names}
    return Topology(name, tuple(arcs), latencies_us)


def _real_files() -> list[str]:
    found: list[str] = []
    folders = list(COLLECTIONS)
    while folders:
        folder = folders.pop()
        for entry in (REAL / folder).iterdir():
            (folders if entry.is_dir() else found).append(f"{folder}/{entry.name}")
    return found
