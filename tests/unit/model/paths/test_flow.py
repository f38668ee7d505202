"""Flows of several units, against a library's min-cost flow in a graph with split routers."""

from __future__ import annotations

from random import Random

import networkx
import pytest

from gridstat.model.paths.budget import Budget
from gridstat.model.paths.flow import flow, walks
from gridstat.model.paths.mask import Mask, Terminals
from gridstat.model.paths.problem import Problem
from lab.topologies import FAMILIES, random_topology

MANY = 9


def _problem(family: str, random: Random, *, is_lone: bool) -> Problem:
    graph = random_topology(family, random.randrange(8, 40, 2), random.randrange(1_000)).graph()
    first, second, third, fourth = random.sample(range(len(graph.routers)), 4)
    units = random.choice((2, 3))
    terminals = Terminals(
        starts=((first, 2), (second, units)),
        ends=((third, 2), (fourth, 2)),
        units=units,
        edges=frozenset((first, second, third, fourth)),
        node_disjoint=is_lone,
    )
    return Problem(Mask(graph, frozenset(), frozenset(), None), terminals)


def _least_price(problem: Problem) -> int | None:
    """Return the least price by the library; every router is an arc from its entry to its exit."""
    graph, terminals = problem.graph, problem.terminals
    network = networkx.MultiDiGraph()
    network.add_node("from", demand=-terminals.units)
    network.add_node("to", demand=terminals.units)
    for router in range(len(graph.routers)):
        room = 1 if terminals.node_disjoint and router not in terminals.edges else MANY
        network.add_edge((router, "in"), (router, "out"), capacity=room, weight=0)
    starts, ends = dict(terminals.starts), dict(terminals.ends)
    for start, room in starts.items():
        entry_us = graph.router_latencies_us[start]
        network.add_edge("from", (start, "out"), capacity=room, weight=entry_us)
    for end, room in ends.items():
        network.add_edge((end, "in"), "to", capacity=room, weight=0)
    for arc, price in enumerate(graph.prices):
        if graph.heads[arc] not in starts and graph.tails[arc] not in ends:
            tail, head = (graph.tails[arc], "out"), (graph.heads[arc], "in")
            network.add_edge(tail, head, capacity=1, weight=price)
    try:
        return int(networkx.min_cost_flow_cost(network))
    except networkx.NetworkXUnfeasible:
        return None


@pytest.mark.parametrize("is_lone", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_flow_has_the_least_price_and_every_unit_arrives(family: str, is_lone: bool) -> None:
    random = Random(f"{family}/{is_lone}")
    prices = set[bool]()
    for _ in range(12):
        problem = _problem(family, random, is_lone=is_lone)
        carrying = flow(
            problem.network,
            problem.prices,
            problem.price_potentials(),
            budget=Budget(lambda: 0.0, 1.0),
        )
        expected = _least_price(problem)
        prices.add(expected is None)
        if carrying is None:
            assert expected is None
            continue
        assert sum(problem.prices[arc] for arc in carrying) == expected
        ways = walks(problem.network, carrying)
        assert len(ways) == problem.terminals.units
        assert sorted(arc for _, arcs in ways for arc in arcs) == sorted(carrying)
    assert False in prices
