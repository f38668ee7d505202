"""Subsets of the set of all answers, defined by prefixes of paths.

A space fixes whole paths, prefixes of paths, and arcs that may not follow. Dividing a space by a
walk distinguishes answers by the first arc at which they leave that walk (after Yen and Lawler).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gridstat.model.paths.flow import Network
from gridstat.model.paths.graph import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.paths.problem import Problem
    from gridstat.model.paths.routes import Route


@dataclass(frozen=True, slots=True)
class Prefix:
    """First arcs of one path, at least one, and the arcs that must not follow."""

    arcs: tuple[int, ...]
    forbidden: frozenset[int]
    end: int
    latency_us: int


@dataclass(frozen=True, slots=True)
class Space:
    """Answers with the `whole` paths, one path for each prefix, and `open_units` more.

    No open path starts with an arc in `forbidden`.
    """

    whole: tuple[Route, ...]
    prefixes: tuple[Prefix, ...]
    open_units: int
    forbidden: frozenset[int]

    @property
    def units(self) -> int:
        return self.open_units + len(self.prefixes)

    def arcs(self, walk: Walk) -> tuple[int, ...]:
        """Return a walk through this space with its prefix."""
        if walk.prefix is None:
            return walk.arcs
        return self.prefixes[walk.prefix].arcs + walk.arcs


@dataclass(frozen=True, slots=True)
class Walk:
    """One unit of a flow through a space: the prefix that it continues, if any, and its arcs."""

    prefix: int | None
    arcs: tuple[int, ...]


class SpaceNetwork:
    """Network of the undecided part of a space."""

    __slots__ = ("_ends", "_problem", "_space", "_taken", "labels", "network")

    def __init__(self, problem: Problem, space: Space) -> None:
        self._problem = problem
        self._space = space
        base = problem.network
        self._taken = [arc for route in space.whole for arc in route.arcs]
        self._taken += [arc for prefix in space.prefixes for arc in prefix.arcs]
        out = base.out.copy()
        if space.forbidden:
            for label in problem.start_labels:
                out[label] = tuple(pair for pair in out[label] if pair[0] not in space.forbidden)
        self._remove_used_capacity(out)
        self.labels: dict[int, int | None] = {base.origins[0][0]: None}
        self._ends = [prefix.end for prefix in space.prefixes]
        twins: dict[int, tuple[int, ...]] = {}
        for index, prefix in enumerate(space.prefixes):
            end = prefix.end
            self.labels[len(out)] = index
            twins[end] = (*twins.get(end, ()), len(out))
            out.append(
                tuple(pair for pair in problem.arcs_out[end] if pair[0] not in prefix.forbidden)
            )
        self.network = Network(
            routers=base.routers,
            out=out,
            heads=base.heads,
            origins=[
                *([(base.origins[0][0], space.open_units)] if space.open_units else []),
                *((label, 1) for label, index in self.labels.items() if index is not None),
            ],
            sink=base.sink,
            ends=base.ends,
            node_disjoint=base.node_disjoint,
            twins={} if base.node_disjoint else _mutual(twins),
            single=base.single,
        )

    def _remove_used_capacity(self, out: list[tuple[tuple[int, int], ...]]) -> None:
        """Remove the capacity of terminals that whole paths and prefixes use."""
        problem, space = self._problem, self._space
        graph, origin = problem.graph, problem.network.origins[0][0]
        started = [route.arcs[0] for route in space.whole if route.arcs]
        started += [prefix.arcs[0] for prefix in space.prefixes]
        if origin not in problem.start_labels:
            for arc in started:
                router = graph.tails[arc]
                label = next(at for at, start in problem.start_labels.items() if start == router)
                pair = next(pair for pair in out[origin] if pair[1] == label)
                out[origin] = tuple(other for other in out[origin] if other != pair)
        if problem.network.sink >= 2 * problem.network.routers:
            for route in space.whole:
                if route.arcs:
                    end = graph.heads[route.arcs[-1]]
                    out[end] = out[end][1:]

    def weights(self, weights: list[int]) -> list[int]:
        """Return the weights with the arcs in use excluded."""
        taken = self._taken
        if self.network.node_disjoint:
            # Routers in use cannot be entered, so only arcs directly between edges remain.
            taken = [arc for arc in taken if self._problem.graph.heads[arc] in self.network.ends]
        if not taken:
            return weights
        found = weights.copy()
        for arc in taken:
            found[arc] = NEVER
        return found

    def potentials(self, base: list[int]) -> list[int]:
        """Return the problem's potentials with labels for prefixes and without routers in use."""
        found = base + [base[end] for end in self._ends]
        if self.network.node_disjoint or self.network.single:
            heads = self._problem.graph.heads
            for arc in self._taken:
                if self.network.takes_one(heads[arc]):
                    found[heads[arc]] = NEVER
        return found

    def entries_us(self) -> dict[int, int]:
        """Return the latency of a unit of each origin before it starts.

        It is 0 for a common origin, whose arcs include the starts.
        """
        problem = self._problem
        found: dict[int, int] = {}
        for label, _ in self.network.origins:
            prefix = self.labels[label]
            if prefix is not None:
                found[label] = self._space.prefixes[prefix].latency_us
            elif label in problem.start_labels:
                router = problem.start_labels[label]
                found[label] = problem.graph.router_latencies_us[router]
            else:
                found[label] = 0
        return found

    def walk(self, label: int, arcs: Sequence[int]) -> Walk:
        real = len(self._problem.graph.arcs)
        return Walk(self.labels[label], tuple(arc for arc in arcs if arc < real))


def subspaces(problem: Problem, space: Space, walk: Walk) -> Iterator[Space]:
    """Yield the spaces that make up this one: each leaves the walk at another arc, or keeps it."""
    rest, known, latencies_us = space.prefixes, tuple[int, ...](), problem.latencies_us
    if walk.prefix is None:
        latency_us = problem.graph.router_latencies_us[problem.graph.tails[walk.arcs[0]]]
        yield replace(space, forbidden=space.forbidden | {walk.arcs[0]})
        space = replace(space, open_units=space.open_units - 1)
    else:
        prefix = space.prefixes[walk.prefix]
        known, latency_us = prefix.arcs, prefix.latency_us
        rest = rest[: walk.prefix] + rest[walk.prefix + 1 :]
        narrower = replace(prefix, forbidden=prefix.forbidden | {walk.arcs[0]})
        yield replace(space, prefixes=(*rest, narrower))
    for at in range(1, len(walk.arcs)):
        arcs = known + walk.arcs[:at]
        if _is_cycle(problem, arcs) or _has_better_arc(problem, arcs):
            return
        latency_us += latencies_us[walk.arcs[at - 1]]
        end = problem.graph.heads[arcs[-1]]
        prefix = Prefix(arcs, frozenset((walk.arcs[at],)), end, latency_us)
        yield replace(space, prefixes=(*rest, prefix))
    arcs = known + walk.arcs
    route = problem.route(arcs)
    if route is not None and not _is_cycle(problem, arcs) and not _has_better_arc(problem, arcs):
        yield replace(space, prefixes=rest, whole=(*space.whole, route))


def _is_cycle(problem: Problem, arcs: tuple[int, ...]) -> bool:
    """Return whether the last arc leads back to an earlier router."""
    head = problem.graph.heads[arcs[-1]]
    return any(problem.graph.tails[arc] == head for arc in arcs)


def _has_better_arc(problem: Problem, arcs: tuple[int, ...]) -> bool:
    """Return whether a single arc is as good as the end of this prefix.

    Another space then has an equally good answer. Where no router is shared, no other path could
    use that arc, unless it joins start and end.
    """
    graph, costs, latencies_us = problem.graph, problem.costs, problem.latencies_us
    if not problem.terminals.node_disjoint or len(arcs) == 1:
        return False
    head = graph.heads[arcs[-1]]
    cost, latency_us = costs[arcs[-1]], latencies_us[arcs[-1]]
    tails = {graph.tails[arc]: arc for arc in arcs[:-1]}
    shortest: dict[int, list[int]] = {}
    for arc, tail in graph.arcs_into[head]:
        if tail in tails:
            shortest.setdefault(tail, []).append(arc)
    for arc in reversed(arcs[:-1]):
        cost += costs[arc]
        latency_us += latencies_us[arc]
        tail = graph.tails[arc]
        if tail == graph.tails[arcs[0]] and head in problem.network.ends:
            continue
        if any(
            costs[other] <= cost and latencies_us[other] <= latency_us
            for other in shortest.get(tail, ())
        ):
            return True
    return False


def _mutual(twins: dict[int, tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
    """Return for each label all others that leave by the arcs of the same router."""
    return {
        label: tuple(other for other in (router, *labels) if other != label)
        for router, labels in twins.items()
        for label in (router, *labels)
    }
