"""The program that holds thousands of searches against a solver, on a few of them."""

from __future__ import annotations

import time
from random import Random

import pytest

from gridstat.model.paths import Found, FoundPath, NotFound, PathGraph, disjoint_paths
from gridstat.model.paths.budget import Budget
from lab import path_comparison, path_oracle
from lab.path_comparison import Comparison, Searched, compare
from lab.path_oracle import UNBOUNDED_US, Demand, SolverGaveUpError
from lab.topologies import random_topology, with_ducts

SEARCHES, TOPOLOGIES, SEED = 120, 40, 17


@pytest.fixture
def comparison(monkeypatch: pytest.MonkeyPatch) -> Comparison:
    monkeypatch.setattr(path_comparison, "ROUTERS_MAX", 24)
    return Comparison()


@pytest.mark.feature("S0-48", "S0-50", reach="internal")
def test_no_refusal_is_false_and_every_reason_is_true(comparison: Comparison) -> None:
    """Publisher and subscriber share none, one or two edge routers."""
    for one in compare(SEARCHES, TOPOLOGIES, SEED):
        comparison.add(one)
    assert comparison.bad_answers == []
    assert comparison.false_refusals == []
    assert comparison.wrong_reasons == []
    assert comparison.undecided == []
    figures = comparison.figures()
    assert figures["searches"] == SEARCHES
    assert figures["refusals"] >= SEARCHES // 6
    assert figures["unjudged"] == figures["unfound_ducts"] == 0
    assert figures["with_parallels"] > SEARCHES // 4
    assert 0 < figures["search_steps_p99"] <= figures["search_steps_max"]
    assert {kind[0] for kind in comparison.kinds} == {"0", "1", "2"}


def test_common_edges_in_a_wide_grid_are_refused_for_their_latency_and_not_their_number() -> None:
    """The search went round in circles there until its time was up, and then counted three."""
    grid = random_topology("grid", 110, 20)
    edges = ["c1/r42", "c1/r88"]
    answer = disjoint_paths(
        grid.graph(), edges, edges, (628, 648, 786, 795), clock=time.thread_time, budget_s=1.0
    )
    assert isinstance(answer, NotFound)
    assert answer.reason == "latency"
    there = Demand(tuple(edges), tuple(edges), (answer.latency_us_best,) * 4)
    assert path_oracle.is_possible(grid, there)


def test_four_paths_between_common_edges_of_a_wide_grid_take_few_steps() -> None:
    grid = random_topology("grid", 110, 20)
    edges = ["c1/r42", "c1/r88"]
    budget = Budget(lambda: 0.0, 1.0)
    answer = disjoint_paths(
        grid.graph(), edges, edges, (UNBOUNDED_US,) * 4, clock=lambda: 0.0, whole=budget
    )
    assert isinstance(answer, Found)
    assert answer.is_node_disjoint
    assert budget.steps <= 10 * len(grid.routers)


RING = random_topology("grid", 16, 0)
FOUR = Demand(("c1/r0", "c1/r15"), ("c1/r0", "c1/r15"), (UNBOUNDED_US,) * 4)


def judged(answer: Found | NotFound, demand: Demand = FOUR) -> Comparison:
    found = Comparison()
    found.add(Searched(RING, demand, answer, ms=1.0))
    return found


def test_a_false_refusal_is_seen() -> None:
    assert judged(NotFound("disjoint", paths_max=2)).missed() == [
        "false_refusals is 1, at most 0 allowed"
    ]
    assert len(judged(NotFound("budget")).false_refusals) == 1


def test_a_wrong_reason_is_seen() -> None:
    tight = Demand(FOUR.sources, FOUR.targets, (0, 0, 0, 0))
    assert len(judged(NotFound("disjoint", paths_max=2), tight).wrong_reasons) == 1
    assert len(judged(NotFound("latency", 4, latency_us_best=1), tight).wrong_reasons) == 1
    assert len(judged(NotFound("budget"), tight).undecided) == 1


def test_a_path_that_is_given_twice_is_seen() -> None:
    alone = FoundPath(("c1/r0",), (), RING.router_latency_us["c1/r0"], 0)
    answer = Found((alone, alone, alone, alone), True, True, True)
    assert judged(answer).missed() == ["bad_answers is 1, at most 0 allowed"]


def test_a_slow_search_is_seen() -> None:
    found = judged(NotFound("disjoint", paths_max=2))
    found.false_refusals.clear()
    found.took_ms.append(101.0)
    assert [missed.split()[0] for missed in found.missed()] == ["search_ms_p99", "search_ms_max"]


def test_a_search_is_judged_by_its_first_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cold cache is part of what a search costs; a second attempt would hide it."""
    asked = list[PathGraph]()

    def counted(graph: PathGraph, *_: object, **__: object) -> NotFound:
        asked.append(graph)
        return NotFound("disjoint", paths_max=0)

    monkeypatch.setattr(path_comparison, "disjoint_paths", counted)
    monkeypatch.setattr(path_comparison, "BOUNDLESS", 1.0)
    assert len(list(compare(6, 3, SEED))) == len(asked) == 6


def test_refusals_without_a_verdict_of_the_solver_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def gave_up(*_: object) -> bool:
        raise SolverGaveUpError

    monkeypatch.setattr(path_comparison, "is_possible", gave_up)
    found = judged(NotFound("latency", 4, latency_us_best=1))
    assert [missed.split()[0] for missed in found.missed()] == ["unjudged"]


def test_paths_among_ducts_that_only_the_solver_finds_are_bounded_apart() -> None:
    ducts = with_ducts(RING, Random(1))
    one = Demand(("c1/r0",), ("c1/r15",), (UNBOUNDED_US,))
    found = Comparison()
    found.add(Searched(ducts, one, NotFound("budget"), ms=1.0))
    assert [missed.split()[0] for missed in found.missed()] == ["unfound_ducts"]
    assert found.undecided_ducts == []


def test_topologies_of_all_sizes_have_links_beside_each_other() -> None:
    found = [path_comparison.topology_at(index, 40, SEED) for index in range(40)]
    assert max(len(one.routers) for one in found if one.has_parallels) > 100
    assert all(
        len(one.routers) <= path_comparison.DUCT_ROUTERS_MAX for one in found if one.has_ducts
    )
    assert any(not one.has_parallels for one in found)
