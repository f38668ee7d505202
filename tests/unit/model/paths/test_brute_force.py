"""The search against every set of paths there is, in tiny graphs of all shapes."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from gridstat.model.paths import Arc, Found, NotFound, PathGraph, disjoint_paths
from tests.unit.model.paths.brute_force import BestSet, TinyCloud, best_set, paths_max

ROUTERS = tuple("abcdefg")
PLENTY_S = 30.0


@dataclass(frozen=True, slots=True)
class Case:
    """A tiny cloud and one question about it."""

    cloud: TinyCloud
    sources: list[str]
    targets: list[str]
    bounds_us: list[int]
    excluded_channels: frozenset[int]
    excluded_routers: frozenset[str]
    cheap_channels: dict[int, int]
    single_routers: frozenset[str] = frozenset()

    @property
    def masked(self) -> TinyCloud:
        """Return the cloud after the exclusions and with the lower prices."""
        return replace(
            self.cloud,
            arcs=tuple(
                replace(arc, cost=self.cheap_channels.get(arc.channel_id, arc.cost))
                for arc in self.cloud.arcs
                if arc.channel_id not in self.excluded_channels
                and not {arc.from_router, arc.to_router} & self.excluded_routers
            ),
        )

    def alive(self, routers: list[str]) -> list[str]:
        return [router for router in routers if router not in self.excluded_routers]

    def expected(self) -> BestSet | None:
        sources, targets = self.alive(self.sources), self.alive(self.targets)
        if not sources or not targets:
            return None
        return best_set(self.masked, sources, targets, self.bounds_us, self.single_routers)

    def answer(self) -> Found | NotFound:
        return disjoint_paths(
            PathGraph(self.cloud.arcs, self.cloud.router_latency_us),
            self.sources,
            self.targets,
            self.bounds_us,
            excluded_channels=self.excluded_channels,
            excluded_routers=self.excluded_routers,
            cheap_channels=self.cheap_channels,
            single_routers=self.single_routers,
            budget_s=PLENTY_S,
            clock=time.thread_time,
        )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    routers = ROUTERS[: draw(st.integers(2, 7))]
    ends = st.permutations(routers).map(lambda order: (order[0], order[1]))
    drawn = draw(
        st.lists(st.tuples(ends, st.integers(0, 9), st.integers(0, 9)), min_size=3, max_size=16)
    )
    arcs = tuple(
        Arc(number, tail, head, cost, latency_us)
        for number, ((tail, head), cost, latency_us) in enumerate(drawn, start=1)
    )
    edges = st.lists(st.sampled_from(routers), min_size=1, max_size=2, unique=True)
    some_channels = st.sets(st.integers(1, len(arcs)), max_size=2)
    return Case(
        cloud=TinyCloud(arcs, {router: draw(st.integers(0, 3)) for router in routers}),
        sources=draw(edges),
        targets=draw(edges),
        bounds_us=sorted(draw(st.lists(st.integers(4, 40), min_size=1, max_size=4))),
        excluded_channels=frozenset(draw(some_channels)),
        excluded_routers=frozenset(draw(st.sets(st.sampled_from(routers), max_size=1))),
        cheap_channels={number: draw(st.integers(0, 3)) for number in draw(some_channels)},
        single_routers=frozenset(draw(st.sets(st.sampled_from(routers), max_size=2))),
    )


@pytest.mark.feature("S0-48", "S1-4")
@settings(max_examples=400)
@given(cases())
def test_the_answer_is_the_best_of_all_sets_of_paths(case: Case) -> None:
    answer, expected = case.answer(), case.expected()
    event(type(answer).__name__ if isinstance(answer, Found) else answer.reason)
    if expected is None:
        assert isinstance(answer, NotFound)
        assert answer.reason != "budget"
        return
    assert isinstance(answer, Found)
    assert answer.is_optimal
    assert sum(path.cost for path in answer.paths) == expected.cost
    if len(case.bounds_us) > 1:
        assert answer.is_node_disjoint == expected.is_node_disjoint


@pytest.mark.feature("S0-50")
@settings(max_examples=150)
@given(cases())
def test_an_answer_keeps_what_it_promises(case: Case) -> None:
    answer = case.answer()
    if isinstance(answer, NotFound):
        return
    arcs = {arc.channel_id: arc for arc in case.masked.arcs}
    channels = [channel for path in answer.paths for channel in path.channel_ids]
    assert len(channels) == len(set(channels))
    for path, bound_us in zip(answer.paths, case.bounds_us, strict=True):
        ways = [arcs[channel] for channel in path.channel_ids]
        assert [path.routers[0], *(arc.to_router for arc in ways)] == list(path.routers)
        assert [*(arc.from_router for arc in ways), path.routers[-1]] == list(path.routers)
        assert path.routers[0] in case.sources
        assert path.routers[-1] in case.targets
        assert len(set(path.routers)) == len(path.routers)
        assert not case.excluded_routers.intersection(path.routers)
        assert path.cost == sum(arc.cost for arc in ways)
        assert path.latency_us == sum(arc.latency_us for arc in ways) + sum(
            case.cloud.router_latency_us[router] for router in path.routers
        )
        assert path.latency_us <= bound_us
    assert sum(not path.channel_ids for path in answer.paths) == len(
        {path.routers for path in answer.paths if not path.channel_ids}
    )


@settings(max_examples=150)
@given(cases())
def test_a_refusal_gives_the_true_reason(case: Case) -> None:
    answer = case.answer()
    if isinstance(answer, Found):
        return
    sources, targets = case.alive(case.sources), case.alive(case.targets)
    most = 0
    if sources and targets:
        wanted = len(case.bounds_us)
        most = paths_max(case.masked, sources, targets, wanted, case.single_routers)
    match answer.reason:
        case "disconnected":
            assert most == 0
        case "disjoint":
            assert answer.paths_max == most
        case "latency":
            assert most == len(case.bounds_us)
            assert _raised(case, answer.latency_us_best).expected() is not None
            assert _raised(case, answer.latency_us_best - 2).expected() is None
        case "budget":
            raise AssertionError("a tiny graph needs no budget")


@settings(max_examples=100)
@given(cases())
def test_one_path_is_refused_with_the_least_latency_there_is(case: Case) -> None:
    lone = replace(case, bounds_us=[0])
    answer = lone.answer()
    if isinstance(answer, Found) or answer.reason != "latency":
        return
    assert replace(lone, bounds_us=[answer.latency_us_best - 1]).expected() is None
    assert replace(lone, bounds_us=[answer.latency_us_best]).expected() is not None


def _raised(case: Case, least_us: int) -> Case:
    """The same question with every bound at least so high."""
    return replace(case, bounds_us=[max(bound_us, least_us) for bound_us in case.bounds_us])


@pytest.mark.feature("S0-50")
@pytest.mark.parametrize("seed", range(80))
def test_tight_and_unequal_bounds_of_many_paths_are_judged_rightly(seed: int) -> None:
    """Draws denser clouds than a strategy would, with bounds about what the cheapest set takes."""
    random = Random(seed)
    routers = ROUTERS[: random.randint(3, 6)]
    arcs: list[Arc] = []
    for number in range(1, random.randint(12, 18)):
        tail, head = random.sample(routers, 2)
        arcs.append(Arc(number, tail, head, random.randint(0, 9), random.randint(0, 9)))
    plain = Case(
        cloud=TinyCloud(tuple(arcs), {router: random.choice((0, 0, 1, 3)) for router in routers}),
        sources=random.sample(routers, random.choice((1, 2))),
        targets=random.sample(routers, random.choice((1, 2))),
        bounds_us=[1_000] * random.choice((3, 4)),
        excluded_channels=frozenset(),
        excluded_routers=frozenset(),
        cheap_channels={},
    )
    cheapest = plain.answer()
    if isinstance(cheapest, NotFound):
        assert plain.expected() is None
        return
    for factor in (0.9, 0.75, 0.6):
        tight_us = [path.latency_us * factor + random.randint(-1, 3) for path in cheapest.paths]
        case = replace(plain, bounds_us=sorted(max(0, round(bound_us)) for bound_us in tight_us))
        answer, expected = case.answer(), case.expected()
        assert isinstance(answer, Found) == (expected is not None)
        if isinstance(answer, Found) and expected is not None:
            assert sum(path.cost for path in answer.paths) == expected.cost
