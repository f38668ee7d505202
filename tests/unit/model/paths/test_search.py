"""Examples of the search for disjoint paths."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gridstat.model.errors import LayoutError
from gridstat.model.paths import Arc, Found, FoundPath, NotFound, PathGraph, disjoint_paths
from tests.unit.model.paths.shapes import WIDE_US, cloud, search, ways

TRAP = "s>a s>b:4 a>c a>t:4 b>d:4 b>c:1 c>t:1 d>t:4"
"""The cheapest path s-a-c-t bars every pair; the pair must leave it."""


def test_the_cheapest_path_is_found() -> None:
    answer = search(cloud("s>a:1:5 a>t:1:5 s>t:3:1"), "s", "t", 100)
    assert answer == Found(
        paths=(FoundPath(("s", "a", "t"), (1, 2), latency_us=10, cost=2),),
        is_node_disjoint=True,
        shares_edge=False,
        is_optimal=True,
    )


def test_a_bound_that_the_cheapest_path_misses_is_met_at_the_least_extra_cost() -> None:
    graph = cloud("s>a:1:5 a>t:1:5 s>b:1:4 b>t:2:4 s>t:9:1")
    assert ways(search(graph, "s", "t", 10)) == ["sat"]
    assert ways(search(graph, "s", "t", 9)) == ["sbt"]
    assert ways(search(graph, "s", "t", 7)) == ["st"]


def test_of_equally_cheap_paths_the_faster_is_taken() -> None:
    assert ways(search(cloud("s>a:1:9 a>t:1:9 s>b:1:2 b>t:1:2"), "s", "t")) == ["sbt"]


def test_latency_counts_every_router_passed() -> None:
    graph = cloud("s>a:1:10 a>t:1:10", s=1, a=2, t=4)
    answer = search(graph, "s", "t", 27)
    assert isinstance(answer, Found)
    assert answer.paths[0].latency_us == 27
    assert search(graph, "s", "t", 26) == NotFound("latency", 1, latency_us_best=27)


def test_a_pair_is_found_although_the_cheapest_path_bars_it() -> None:
    answer = search(cloud(TRAP), "s", "t", WIDE_US, WIDE_US)
    assert sorted(ways(answer)) == ["sat", "sbct"]
    assert isinstance(answer, Found)
    assert answer.is_node_disjoint
    assert answer.shares_edge


@pytest.mark.feature("S0-50")
def test_each_of_the_paths_keeps_its_own_bound() -> None:
    # The pair of least cost, and of least total latency, takes 3 and 16; another takes 10 each.
    graph = cloud("s>p:1:1 p>q:1:1 q>t:1:1 s>c:1:8 c>b:1:0 b>t:1:8 p>b:2:1 c>q:2:1")
    assert ways(search(graph, "s", "t", 16, 16)) == ["spqt", "scbt"]
    assert ways(search(graph, "s", "t", 12, 12)) == ["spbt", "scqt"]
    assert search(graph, "s", "t", 9, 9) == NotFound("latency", 2, 10, 1)


def test_paths_are_ordered_by_latency_and_take_the_bounds_in_that_order() -> None:
    graph = cloud("s>a:1:20 a>t:1:20 s>b:5:2 b>t:5:2 s>c:1:30 c>t:1:30")
    answer = search(graph, "s", "t", 5, 50)
    assert ways(answer) == ["sbt", "sat"]
    assert isinstance(answer, Found)
    assert [path.latency_us for path in answer.paths] == [4, 40]


def test_two_edges_at_both_ends_share_no_router_at_all() -> None:
    graph = cloud("s>a:9 a>t:9 r>b:9 b>u:9 s>m:1 m>t:1 s>n:1 n>t:1")
    answer = search(graph, "sr", "tu", WIDE_US, WIDE_US)
    assert isinstance(answer, Found)
    assert not answer.shares_edge
    assert {path.routers[0] for path in answer.paths} == {"s", "r"}
    assert {path.routers[-1] for path in answer.paths} == {"t", "u"}


def test_an_edge_is_shared_where_the_other_leads_nowhere() -> None:
    answer = search(cloud("s>a a>t s>b b>t"), "sr", "t", WIDE_US, WIDE_US)
    assert isinstance(answer, Found)
    assert ways(answer) == ["sat", "sbt"]
    assert answer.shares_edge
    assert answer.is_node_disjoint


def test_paths_that_must_share_a_router_share_no_channel_and_say_so() -> None:
    graph = cloud("s>a s>a a>m a>m m>t m>t")
    answer = search(graph, "s", "t", WIDE_US, WIDE_US)
    assert isinstance(answer, Found)
    assert not answer.is_node_disjoint
    channels = [channel for path in answer.paths for channel in path.channel_ids]
    assert sorted(channels) == [1, 2, 3, 4, 5, 6]


def test_parallel_channels_between_the_edges_are_two_paths() -> None:
    answer = search(cloud("s>t s>t"), "s", "t", WIDE_US, WIDE_US)
    assert isinstance(answer, Found)
    assert answer.is_node_disjoint
    assert [path.channel_ids for path in answer.paths] == [(1,), (2,)]


def test_a_common_edge_is_a_path_without_channels() -> None:
    answer = search(cloud("s>t", s=7), "s", "s", 7)
    assert answer == Found((FoundPath(("s",), (), 7, 0),), True, False, True)


def test_two_common_edges_are_two_such_paths() -> None:
    answer = search(cloud("a>b b>a"), "ab", "ab", WIDE_US, WIDE_US)
    assert ways(answer) == ["a", "b"]


def test_one_common_edge_is_one_path_and_the_others_edges_are_the_second() -> None:
    graph = cloud("a>b b>c a>x x>c")
    answer = search(graph, "ab", "bc", WIDE_US, WIDE_US)
    assert ways(answer) == ["b", "axc"]
    assert isinstance(answer, Found)
    assert not answer.shares_edge


def test_one_router_for_both_ends_is_not_two_paths() -> None:
    answer = search(cloud("a>b b>a"), "a", "a", WIDE_US, WIDE_US)
    assert answer == NotFound("disjoint", paths_max=1)


def test_one_router_for_both_ends_needs_no_search_among_its_rings() -> None:
    names = "abcdefgh"
    mesh = cloud(" ".join(f"{one}>{other}" for one in names for other in names if one != other))
    clock_reads: list[float] = []

    def clock() -> float:
        clock_reads.append(0.0)
        return 0.0

    answer = disjoint_paths(mesh, ["a"], ["a"], (WIDE_US, WIDE_US), clock=clock)
    assert answer == NotFound("disjoint", paths_max=1)
    assert len(clock_reads) < 10, "it branches"


def test_a_path_never_leads_round_to_where_it_began() -> None:
    graph = cloud("b>x x>b b>y y>b y>c")
    answer = search(graph, "ab", "bc", WIDE_US, WIDE_US, WIDE_US)
    assert answer == NotFound("disjoint", paths_max=2)


def test_excluded_channels_and_routers_are_avoided() -> None:
    graph = cloud("s>a a>t s>b:5 b>t:5 s>c:9 c>t:9")
    assert ways(search(graph, "s", "t")) == ["sat"]
    assert ways(search(graph, "s", "t", excluded_channels={2})) == ["sbt"]
    assert ways(search(graph, "s", "t", excluded_routers={"a"})) == ["sbt"]
    masks = {"excluded_channels": {2}, "excluded_routers": {"b"}}
    assert ways(search(graph, "s", "t", **masks)) == ["sct"]
    assert search(graph, "s", "t", excluded_routers={"s"}) == NotFound("disconnected")


def test_an_excluded_edge_leaves_the_other() -> None:
    graph = cloud("s>a a>t r>b:5 b>t:5")
    assert ways(search(graph, "sr", "t", excluded_routers={"s"})) == ["rbt"]


def test_channels_that_carry_the_variable_already_draw_the_path() -> None:
    graph = cloud("s>a:5 a>t:5 s>b:6 b>t:6")
    assert ways(search(graph, "s", "t")) == ["sat"]
    answer = search(graph, "s", "t", cheap_channels={3: 0, 4: 2})
    assert ways(answer) == ["sbt"]
    assert isinstance(answer, Found)
    assert answer.paths[0].cost == 2


def test_one_search_leaves_no_trace_in_the_next() -> None:
    graph = cloud(TRAP)
    plain = search(graph, "s", "t", WIDE_US, WIDE_US)
    search(graph, "s", "t", 5, 5, excluded_channels={1}, cheap_channels={8: 0})
    search(graph, "s", "t", 1, excluded_routers={"c"})
    assert search(graph, "s", "t", WIDE_US, WIDE_US) == plain


@pytest.mark.parametrize(
    ("drawing", "bounds_us", "refusal"),
    [
        ("s>a b>t", (10,), NotFound("disconnected")),
        ("t>s", (10, 10), NotFound("disconnected")),
        ("s>a s>b a>m b>m m>t", (9, 9), NotFound("disjoint", paths_max=1)),
        ("s>a:1:9 a>t:1:9", (17,), NotFound("latency", 1, 18, 0)),
        ("s>a:1:1 a>t:1:1 s>b:1:9 b>t:1:9", (2, 17), NotFound("latency", 2, 18, 1)),
        ("s>a:1:3 a>t:1:3 s>b:1:9 b>t:1:9", (5, 18), NotFound("latency", 2, 6, 0)),
    ],
)
def test_a_refusal_names_what_stands_against_it(
    drawing: str, bounds_us: tuple[int, ...], refusal: NotFound
) -> None:
    assert search(cloud(drawing), "s", "t", *bounds_us) == refusal


def test_edges_unknown_to_the_graph_are_disconnected() -> None:
    assert search(cloud("s>t"), "x", "t") == NotFound("disconnected")


def test_a_search_out_of_time_says_that_it_has_no_verdict() -> None:
    rungs = " ".join(f"{a}-{b}:1:{5 + index}" for index, (a, b) in enumerate(_ladder()))
    graph = cloud(rungs)
    bounds_us = (40, 40, 40)
    ticks = iter(range(1_000_000))
    answer = disjoint_paths(graph, ["s"], ["t"], bounds_us, clock=lambda: float(next(ticks)))
    settled = search(graph, "s", "t", *bounds_us)
    assert isinstance(settled, NotFound)
    assert settled.reason == "latency"
    assert answer == NotFound("budget")


@pytest.mark.parametrize("bounds_us", [(), (2, 1), (1, 1, 1, 1, 1)])
def test_bounds_that_are_none_too_many_or_unordered_are_refused(bounds_us: tuple[int, ...]) -> None:
    with pytest.raises(LayoutError):
        disjoint_paths(cloud("s>t"), ["s"], ["t"], bounds_us, clock=lambda: 0.0)


@pytest.mark.parametrize("cost", [-1, 1 << 36])
def test_a_cost_out_of_bounds_is_refused(cost: int) -> None:
    with pytest.raises(LayoutError):
        search(cloud("s>t"), "s", "t", cheap_channels={1: cost})


@pytest.mark.parametrize(
    "arcs",
    [
        [Arc(1, "a", "b", 1, 1), Arc(1, "b", "c", 1, 1)],
        [Arc(1, "a", "a", 1, 1)],
        [Arc(1, "a", "b", -1, 1)],
        [Arc(1, "a", "b", 1, 1 << 36)],
    ],
)
def test_a_graph_of_nonsense_is_refused(arcs: list[Arc]) -> None:
    with pytest.raises(LayoutError):
        PathGraph(arcs, {})


@pytest.mark.parametrize(
    "drawing", ["a-m m-b", "a-m m-n n-b", "a-m m-b a-x b-y", "a-m m-b m-z z-y"]
)
def test_two_common_edge_routers_give_four_paths_wherever_channels_lead_both_ways(
    drawing: str,
) -> None:
    """A flow would join the two paths between the edges into circles over m."""
    found = ways(search(cloud(drawing), "ab", "ab", *[WIDE_US] * 4))
    assert set(found) > {"a", "b"}
    assert {(way[0], way[-1]) for way in found} == {
        ("a", "a"),
        ("b", "b"),
        ("a", "b"),
        ("b", "a"),
    }


def test_one_common_edge_router_is_start_and_end_of_different_paths() -> None:
    found = ways(search(cloud("b>m m>a a>n n>c a-x"), "ab", "ac", *[WIDE_US] * 3))
    assert sorted(found) == ["a", "anc", "bma"]


def test_paths_both_ways_share_no_router_if_there_is_a_way_round() -> None:
    ring = cloud("a-m m-b a-n n-o o-b m-n")
    answer = search(ring, "ab", "ab", *[WIDE_US] * 4)
    assert isinstance(answer, Found)
    assert answer.is_node_disjoint
    assert answer.is_optimal


def test_paths_both_ways_keep_their_bounds() -> None:
    graph = cloud("a-m:1:10 m-b:1:10 a-n:5:4 n-b:5:4")
    answer = search(graph, "ab", "ab", 0, 0, 8, 20)
    assert ways(answer)[:2] == ["a", "b"]
    assert [way[1] for way in ways(answer)[2:]] == ["n", "m"]
    refusal = search(graph, "ab", "ab", 0, 0, 7, 20)
    assert isinstance(refusal, NotFound)
    assert (refusal.reason, refusal.latency_us_best) == ("latency", 8)


def test_a_search_out_of_budget_does_not_count_paths() -> None:
    """Whatever the budget, four paths that are there are never refused as fewer."""
    for at in range(40):
        answer = search(cloud("a-m m-b a-x b-y x-y"), "ab", "ab", *[3] * 4, budget_s=at * 1e-5)
        assert isinstance(answer, Found) or answer.reason in {"budget", "latency"}


def test_a_single_router_is_crossed_by_one_path_though_two_would_be_cheaper() -> None:
    graph = cloud("s>a s>b a>r b>r r>c r>d a>q:9 q>c:9 c>h d>h h>t h>u u>t")
    wide = (WIDE_US, WIDE_US)
    assert sorted(ways(search(graph, "s", "t", *wide))) == ["sarcht", "sbrdhut"]
    assert search(graph, "s", "t", *wide, single_routers={"h"}) == NotFound("disjoint", 1)
    found = ways(search(graph, "s", "t", *wide, single_routers={"r"}))
    assert sorted(found) == ["saqcht", "sbrdhut"]


def _ladder() -> list[tuple[str, str]]:
    """Three rows of routers with rungs between, from s to t."""
    rows = ["abcde", "fghij", "klmno"]
    along = [pair for row in rows for pair in pairwise(row)]
    across = [pair for one, other in pairwise(rows) for pair in zip(one, other, strict=True)]
    return [*[("s", row[0]) for row in rows], *along, *across, *[(row[-1], "t") for row in rows]]
