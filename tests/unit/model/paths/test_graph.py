"""Distances in a path graph, against a library that knows them."""

from __future__ import annotations

from random import Random

import networkx
import pytest

from gridstat.model.paths.graph import NEVER, PathGraph, lowered
from lab.topologies import FAMILIES, random_topology
from tests.unit.model.paths.shapes import cloud


def _distances_to(graph: PathGraph, weights: list[int], target: int) -> list[int]:
    reverse = networkx.MultiDiGraph()
    reverse.add_nodes_from(range(len(graph.routers)))
    for arc, weight in enumerate(weights):
        reverse.add_edge(graph.heads[arc], graph.tails[arc], weight=weight)
    found = networkx.single_source_dijkstra_path_length(reverse, target)
    return [found.get(router, NEVER) for router in range(len(graph.routers))]


@pytest.mark.parametrize("family", FAMILIES)
def test_distances_to_a_router_are_those_of_the_library(family: str) -> None:
    graph = random_topology(family, 30, 1).graph()
    for target in (0, 7, 29):
        assert graph.prices_to(target) == _distances_to(graph, graph.prices, target)
        assert graph.latencies_to(target) == _distances_to(graph, graph.latencies_us, target)


@pytest.mark.parametrize("family", FAMILIES)
def test_distances_are_right_again_after_channels_became_cheaper(family: str) -> None:
    random = Random(family)
    graph = random_topology(family, 30, 2).graph()
    prices = graph.prices.copy()
    cheaper = random.sample(range(len(prices)), 12)
    for arc in cheaper:
        prices[arc] = random.randrange(prices[arc])
    before = graph.prices_to(3).copy()
    assert lowered(graph, before, prices, cheaper) == _distances_to(graph, prices, 3)
    assert before == graph.prices_to(3)


def test_numbers_do_not_depend_on_the_order_in_which_channels_are_given() -> None:
    arcs = random_topology("uniform", 12, 3).arcs
    one, other = PathGraph(arcs, {}), PathGraph(reversed(arcs), {})
    assert one.arcs == other.arcs
    assert one.routers == other.routers


def test_a_router_without_channels_is_known_and_out_of_reach() -> None:
    graph = cloud("a>b", lonely=5)
    assert graph.prices_to(graph.number_of["b"])[graph.number_of["lonely"]] == NEVER


def test_cost_comes_before_any_latency_in_the_price() -> None:
    graph = cloud("a>b:1:900 a>c:2:0", b=7)
    assert graph.prices[0] < graph.prices[1]
