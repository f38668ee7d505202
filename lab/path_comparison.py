"""`python -m lab.path_comparison`: thousands of path searches, and a solver's word on each refusal.

Real and random topologies of 10 to 200 routers; publisher and subscriber have none, one or two edge
routers in common. Found paths are checked against the topology. Refusals are held against an
integer programme (HiGHS): whether there are such paths, and whether the reason is true. The exit
code is 1 if a bound is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import combinations
from random import Random
from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.allocator import zero_clock
from gridstat.model.paths import Found, FoundPath, NotFound, disjoint_paths
from gridstat.model.paths.budget import Budget
from lab.path_oracle import UNBOUNDED_US, Demand, SolverGaveUpError, is_possible
from lab.topologies import (
    FAMILIES,
    Topology,
    random_topology,
    real,
    real_keys,
    with_ducts,
    with_parallels,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.paths import PathGraph

SEARCHES: Final = 5_000
TOPOLOGIES: Final = 200
ROUTERS_MIN, ROUTERS_MAX = 10, 200
P99_MS_MAX: Final = 20.0
MS_MAX: Final = 100.0
EDGES: Final = (
    *((1, 1, 0), (1, 2, 0), (2, 1, 0), (2, 2, 0)),
    *((1, 1, 1), (1, 2, 1), (2, 1, 1), (2, 2, 1), (2, 2, 1)),
    *((2, 2, 2), (2, 2, 2), (2, 2, 2)),
)
"""How many edge routers publisher and subscriber have, and how many of them in common."""
BOUNDLESS: Final = 0.4
"""Share of searches without latency bounds."""
EQUAL: Final = 0.5
"""Share of the others whose paths all have the same bound."""
PROGRESS: Final = 250
WHOLE_S: Final = 3_600.0
"""Budget that counts the steps of a search, and ends none."""
DUCTS_UNDECIDED_MAX: Final = 0.01
"""Largest share of searches among common risks that may end without a verdict where there is no
answer."""
DUCTS_UNFOUND_MAX: Final = 0.005
"""Largest share of them that may end without a verdict where the solver finds paths."""
UNJUDGED_MAX: Final = 0.002
"""Largest share of searches whose refusal the solver may leave without a verdict."""
DUCT_ROUTERS_MAX: Final = 40
"""Every other topology has links beside each other, and up to so many routers ducts as well."""
SOME_US: Final = 2_000
FAILED_MAX: Final = 0.15
"""Largest share of channels that are left out of a search, as if they were full or down."""


@dataclass(frozen=True, slots=True)
class Searched:
    """One search, its answer, its processor time, and its steps."""

    topology: Topology
    demand: Demand
    answer: Found | NotFound
    ms: float
    steps: int = 0

    @property
    def common(self) -> int:
        return len(set(self.demand.sources) & set(self.demand.targets))


@dataclass(slots=True)
class Comparison:
    """Outcome of all searches; every list but the first two has what was wrong."""

    took_ms: list[float] = field(default_factory=list)
    """Processor time of each search at its first attempt: there is no other."""
    steps: list[int] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    bad_answers: list[str] = field(default_factory=list)
    false_refusals: list[str] = field(default_factory=list)
    wrong_reasons: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    undecided_ducts: list[str] = field(default_factory=list)
    """Searches without a verdict, and without an answer, where links have common risks."""
    unfound_ducts: list[str] = field(default_factory=list)
    """Searches without a verdict where links have common risks and the solver finds paths."""
    with_ducts: int = 0
    with_parallels: int = 0
    unjudged: int = 0
    """Refusals on which the solver found no verdict in its own time."""

    def add(self, one: Searched) -> None:
        self.took_ms.append(one.ms)
        self.steps.append(one.steps)
        self.with_ducts += one.topology.has_ducts
        self.with_parallels += one.topology.has_parallels
        reason = one.answer.reason if isinstance(one.answer, NotFound) else "found"
        self.kinds[f"{one.common} common, {len(one.demand.bounds_us)} paths, {reason}"] += 1
        if isinstance(one.answer, Found):
            wrong = complaint(one.topology, one.demand, one.answer)
            if wrong is not None:
                self.bad_answers.append(f"{wrong}: {described(one)}")
            return
        try:
            self._judge(one, one.answer)
        except SolverGaveUpError:
            self.unjudged += 1

    def _judge(self, one: Searched, answer: NotFound) -> None:
        is_undecided = answer.reason == "budget" and one.topology.has_ducts
        if answer.reason not in {"disconnected", "disjoint"} and is_possible(
            one.topology, one.demand
        ):
            (self.unfound_ducts if is_undecided else self.false_refusals).append(described(one))
        elif answer.reason == "budget":
            (self.undecided_ducts if one.topology.has_ducts else self.undecided).append(
                described(one)
            )
        elif answer.reason == "latency":
            raised_us = tuple(max(at, answer.latency_us_best) for at in one.demand.bounds_us)
            if not is_possible(one.topology, replace(one.demand, bounds_us=raised_us)):
                self.wrong_reasons.append(described(one))
        else:
            there = _paths_max(one.topology, one.demand)
            if there >= len(one.demand.bounds_us):
                is_false = is_possible(one.topology, one.demand)
                (self.false_refusals if is_false else self.wrong_reasons).append(described(one))
            elif answer.paths_max != there:
                self.wrong_reasons.append(f"{there} are there: {described(one)}")

    def figures(self) -> dict[str, float]:
        took_ms, steps = sorted(self.took_ms), sorted(self.steps)
        return {
            "searches": len(took_ms),
            "refusals": sum(n for kind, n in self.kinds.items() if not kind.endswith("found")),
            "bad_answers": len(self.bad_answers),
            "false_refusals": len(self.false_refusals),
            "wrong_reasons": len(self.wrong_reasons),
            "undecided": len(self.undecided),
            "with_parallels": self.with_parallels,
            "with_ducts": self.with_ducts,
            "undecided_ducts": len(self.undecided_ducts),
            "unfound_ducts": len(self.unfound_ducts),
            "unjudged": self.unjudged,
            "search_ms_p50": round(took_ms[len(took_ms) // 2], 3),
            "search_ms_p99": round(took_ms[len(took_ms) * 99 // 100], 3),
            "search_ms_max": round(took_ms[-1], 3),
            "search_steps_p99": steps[len(steps) * 99 // 100],
            "search_steps_max": steps[-1],
        }

    def missed(self) -> list[str]:
        """Return the bounds that are missed."""
        figures = self.figures()
        most = {
            "bad_answers": 0,
            "false_refusals": 0,
            "wrong_reasons": 0,
            "undecided": 0,
            "undecided_ducts": DUCTS_UNDECIDED_MAX * self.with_ducts,
            "unfound_ducts": DUCTS_UNFOUND_MAX * self.with_ducts,
            "unjudged": UNJUDGED_MAX * len(self.took_ms),
            "search_ms_p99": P99_MS_MAX,
            "search_ms_max": MS_MAX,
        }
        return [
            f"{name} is {figures[name]}, at most {bound} allowed"
            for name, bound in most.items()
            if figures[name] > bound
        ]


def compare(searches: int, topologies: int, seed: int) -> Iterator[Searched]:
    """Yield the searches: as many for each topology."""
    for index in range(topologies):
        topology = topology_at(index, topologies, seed)
        graph = topology.graph()
        random = Random(f"{topology.name}/{seed}/{index}")
        for _ in range(-(-searches // topologies)):
            excluded, present = _failures(topology, random)
            demand = _demand(topology, graph, random, excluded)
            answer, ms, steps = _timed(graph, demand, excluded)
            yield Searched(present, demand, answer, ms, steps)


def complaint(topology: Topology, demand: Demand, answer: Found) -> str | None:
    """Return what is wrong with an answer, found from the topology alone, or None."""
    wrong = _wrongly_shared(topology, demand, answer)
    for path, bound_us in zip(answer.paths, demand.bounds_us, strict=True):
        if path.routers[0] not in demand.sources or path.routers[-1] not in demand.targets:
            wrong = f"{path} does not join the ends"
        elif len(path.routers) != len(set(path.routers)):
            wrong = f"{path} goes round in a circle"
        elif path != _measured(topology, path) or path.latency_us > bound_us:
            wrong = f"{path} is late, has a gap or another cost"
    return wrong


def _wrongly_shared(topology: Topology, demand: Demand, answer: Found) -> str | None:
    channels = [channel for path in answer.paths for channel in path.channel_ids]
    edges = {*demand.sources, *demand.targets}
    shared = set[str]()
    risks_of = {arc.channel_id: arc.risks for arc in topology.arcs}
    for one, other in combinations(answer.paths, 2):
        run, also = (
            {risk for channel in path.channel_ids for risk in risks_of[channel]}
            for path in (one, other)
        )
        if run & also:
            return f"two paths share {sorted(run & also)}"
        shared |= set(one.routers) & set(other.routers)
        if one.routers == other.routers and not one.channel_ids:
            return "a path that is a single router is given twice"
    if len(channels) != len(set(channels)):
        return "a channel is used twice"
    if answer.is_node_disjoint != (shared <= edges) or answer.shares_edge != bool(shared & edges):
        return "what the paths share is not what is said"
    return None


def described(one: Searched) -> str:
    return f"{one.topology.name} {one.demand} {one.answer}"


def _measured(topology: Topology, path: FoundPath) -> FoundPath:
    """Return the path that its channels make."""
    arcs = {arc.channel_id: arc for arc in topology.arcs}
    ways = [arcs[channel] for channel in path.channel_ids]
    latency_us = sum(arc.latency_us for arc in ways)
    latency_us += sum(topology.router_latency_us[router] for router in path.routers)
    routers = (path.routers[0], *(arc.to_router for arc in ways))
    return FoundPath(routers, path.channel_ids, latency_us, sum(arc.cost for arc in ways))


def _paths_max(topology: Topology, demand: Demand) -> int:
    """Return how many paths share no channel, whatever their latency; at most those asked for."""
    for count in range(len(demand.bounds_us), 0, -1):
        if is_possible(topology, replace(demand, bounds_us=(UNBOUNDED_US,) * count)):
            return count
    return 0


def topology_at(index: int, topologies: int, seed: int) -> Topology:
    """Return the topology of this place; every other pair has links beside each other."""
    found = _alone(index, topologies, seed)
    if not index // 2 % 2:
        return found
    has_ducts = len(found.routers) <= DUCT_ROUTERS_MAX
    add = with_ducts if has_ducts else with_parallels
    return add(found, Random(f"ducts of {found.name}/{seed}"))


def _alone(index: int, topologies: int, seed: int) -> Topology:
    if index % 2:
        keys = _real_keys(ROUTERS_MIN, ROUTERS_MAX)
        return real(keys[index * len(keys) // topologies], seed + index)
    routers = ROUTERS_MIN + (ROUTERS_MAX - ROUTERS_MIN) * index // max(1, topologies - 2)
    return random_topology(FAMILIES[index // 2 % len(FAMILIES)], routers, seed + index)


@cache
def _real_keys(routers_min: int, routers_max: int) -> list[str]:
    return real_keys(routers_min, routers_max)


def _failures(topology: Topology, random: Random) -> tuple[frozenset[int], Topology]:
    """Return channels that are left out, mostly none, and what is left of the topology."""
    share = random.choice((0.0, 0.0, 0.0, random.uniform(0.0, FAILED_MAX)))
    excluded = frozenset(arc.channel_id for arc in topology.arcs if random.random() < share)
    kept = tuple(arc for arc in topology.arcs if arc.channel_id not in excluded)
    return excluded, replace(topology, arcs=kept)


def _demand(
    topology: Topology, graph: PathGraph, random: Random, excluded: frozenset[int]
) -> Demand:
    """Draw edges, and no bounds, or bounds about the least that some paths keep."""
    sources, targets, common = random.choice(EDGES)
    paths = random.choice((1, 2, 3, 4))
    names = random.sample(topology.routers, sources + targets - common)
    plain = Demand(
        tuple(names[:sources]), tuple(names[sources - common :]), (UNBOUNDED_US,) * paths
    )
    if random.random() < BOUNDLESS:
        return plain
    refusal, *_ = _timed(graph, replace(plain, bounds_us=(0,) * paths), excluded)
    least_us = refusal.latency_us_best if isinstance(refusal, NotFound) else 0
    least_us = least_us or SOME_US
    bound_us = round(least_us * random.uniform(0.95, 1.3))
    if random.random() < EQUAL:
        return replace(plain, bounds_us=(bound_us,) * paths)
    bounds_us = [round(bound_us * random.uniform(0.6, 1.0)) for _ in range(paths)]
    return replace(plain, bounds_us=tuple(sorted(bounds_us)))


def _timed(
    graph: PathGraph, demand: Demand, excluded: frozenset[int]
) -> tuple[Found | NotFound, float, int]:
    whole = Budget(zero_clock, WHOLE_S)
    before_s = time.thread_time()
    answer = disjoint_paths(
        graph,
        demand.sources,
        demand.targets,
        demand.bounds_us,
        excluded_channels=excluded,
        clock=zero_clock,
        whole=whole,
    )
    return answer, 1_000 * (time.thread_time() - before_s), whole.steps


def main(argv: list[str] | None = None) -> int:
    asked = _parser().parse_args(argv)
    comparison = Comparison()
    for at, one in enumerate(compare(asked.searches, asked.topologies, asked.seed)):
        comparison.add(one)
        if not asked.json and not (at + 1) % PROGRESS:
            _tell(f"{at + 1} searches: {comparison.figures()}")
    figures, missed = comparison.figures(), comparison.missed()
    for wrong in (
        *comparison.bad_answers,
        *comparison.false_refusals,
        *comparison.wrong_reasons,
        *comparison.undecided,
        *comparison.unfound_ducts,
    ):
        _tell(wrong)
    for kind in sorted(comparison.kinds):
        _tell(f"{comparison.kinds[kind]:6} {kind}")
    _tell(json.dumps({**figures, "topologies": asked.topologies, "seed": asked.seed}))
    _tell("; ".join(missed) or "passed")
    return 1 if missed else 0


def _tell(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.path_comparison", description=__doc__)
    parser.add_argument("--searches", type=int, default=SEARCHES, help="how many")
    parser.add_argument("--topologies", type=int, default=TOPOLOGIES, help="of 10 to 200 routers")
    parser.add_argument("--seed", type=int, default=0, help="of the drawn topologies and searches")
    parser.add_argument("--json", action="store_true", help="no lines of progress")
    return parser


if __name__ == "__main__":
    sys.exit(main())
