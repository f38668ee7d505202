"""Plans of grids: what cannot be built is refused, and two ways are two ways."""

from __future__ import annotations

import networkx as nx
import pytest

from lab.grid_plan import EndPointPlan, GridPlan, LinkPlan, RouterPlan, two_ways


def test_two_ways_share_no_router() -> None:
    plan = two_ways(publishers=2, subscribers=1)
    graph = nx.Graph(plan.wires)
    ways = list(nx.node_disjoint_paths(graph, "north/pmu-1", "centre/view-0"))
    assert len(ways) == 2
    assert {len(way) for way in ways} == {6}


def test_wires_are_the_links_and_the_attachments() -> None:
    plan = two_ways()
    assert len(plan.wires) == 8 + 4
    assert ("north/pmu-0", "e1") in plan.wires


@pytest.mark.parametrize(
    ("links", "end_points", "complaint"),
    [
        ((LinkPlan("a", "c"),), (), "a-c does not join two routers"),
        ((LinkPlan("a", "a"),), (), "a-a does not join two routers"),
        ((), (EndPointPlan("p", ("b",)),), "p must attach to edge routers"),
        ((), (EndPointPlan("p", ()),), "p must attach to edge routers"),
        ((), (EndPointPlan("a", ("a",)),), "share a name"),
        ((), (EndPointPlan("broker", ("a",)),), "share a name"),
    ],
)
def test_a_plan_that_cannot_be_built_is_refused(
    links: tuple[LinkPlan, ...], end_points: tuple[EndPointPlan, ...], complaint: str
) -> None:
    routers = (RouterPlan("a", is_edge=True), RouterPlan("b"))
    with pytest.raises(ValueError, match=complaint):
        GridPlan(routers=routers, links=links, end_points=end_points)
