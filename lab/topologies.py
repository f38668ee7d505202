"""Shapes of clouds for tests and benchmarks: real networks, and random ones of several families.

Every link of a network becomes two event channels. Latency follows the distance in glass fibre; the
cost does not follow the latency, since otherwise the cheapest path would always be the fastest.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
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
        for tail, head in ((one, other), (other, one)):
            arcs.append(Arc(len(arcs) + 1, names[tail], names[head], cost, latency_us))
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
