"""Parts of the set of all answers: those whose paths begin in a given way.

A space fixes whole paths, beginnings of paths, and arcs that may not come next. To divide a space
by a walk is to say where, at the earliest, an answer leaves that walk (after Yen and Lawler).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gridstat.model.paths.flow import Network
from gridstat.model.paths.graph import NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.model.paths.problem import Problem, Route


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first arcs of one path, at least one, and the arcs that it does not take next."""

    arcs: tuple[int, ...]
    forbidden: frozenset[int]
    end: int
    latency_us: int


@dataclass(frozen=True, slots=True)
class Space:
    """Answers that hold the `whole` paths, one path for each beginning, and `open_units` more.

    None of the open ones starts by an arc in `forbidden`.
    """

    whole: tuple[Route, ...]
    beginnings: tuple[Beginning, ...]
    open_units: int
    forbidden: frozenset[int]

    @property
    def units(self) -> int:
        return self.open_units + len(self.beginnings)

    def arcs(self, walk: Walk) -> tuple[int, ...]:
        """A walk through this space from its very start."""
        if walk.beginning is None:
            return walk.arcs
        return self.beginnings[walk.beginning].arcs + walk.arcs


@dataclass(frozen=True, slots=True)
class Walk:
    """One unit of a flow through a space: which beginning it continues, if any, and its arcs."""

    beginning: int | None
    arcs: tuple[int, ...]


class SpaceNetwork:
    """The network of what is left to decide in a space."""

    __slots__ = ("_ends", "_problem", "_space", "_taken", "labels", "network")

    def __init__(self, problem: Problem, space: Space) -> None:
        self._problem = problem
        self._space = space
        base = problem.network
        self._taken = [arc for route in space.whole for arc in route.arcs]
        self._taken += [arc for beginning in space.beginnings for arc in beginning.arcs]
        out = base.out.copy()
        if space.forbidden:
            for label in problem.start_labels:
                out[label] = tuple(pair for pair in out[label] if pair[0] not in space.forbidden)
        self._use_up(out)
        self.labels: dict[int, int | None] = {base.origins[0][0]: None}
        self._ends = [beginning.end for beginning in space.beginnings]
        twins: dict[int, tuple[int, ...]] = {}
        for index, beginning in enumerate(space.beginnings):
            end = beginning.end
            self.labels[len(out)] = index
            twins[end] = (*twins.get(end, ()), len(out))
            out.append(
                tuple(pair for pair in problem.arcs_out[end] if pair[0] not in beginning.forbidden)
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
            lone=base.lone,
            twins={} if base.lone else _mutual(twins),
        )

    def _use_up(self, out: list[tuple[tuple[int, int], ...]]) -> None:
        """Take from the places what whole paths and beginnings use of them."""
        problem, space = self._problem, self._space
        graph, origin = problem.graph, problem.network.origins[0][0]
        started = [route.arcs[0] for route in space.whole if route.arcs]
        started += [beginning.arcs[0] for beginning in space.beginnings]
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
        """The weights without the arcs that are in use."""
        taken = self._taken
        if self.network.lone:
            # Routers in use have no way in, which leaves arcs that touch none between the edges.
            taken = [arc for arc in taken if self._problem.graph.heads[arc] in self.network.ends]
        if not taken:
            return weights
        found = weights.copy()
        for arc in taken:
            found[arc] = NEVER
        return found

    def potentials(self, base: list[int]) -> list[int]:
        """The problem's potentials, with labels for beginnings and without routers in use."""
        found = base + [base[end] for end in self._ends]
        if self.network.lone:
            heads, ends = self._problem.graph.heads, self.network.ends
            for arc in self._taken:
                if heads[arc] not in ends:
                    found[heads[arc]] = NEVER
        return found

    def entries_us(self) -> dict[int, int]:
        """What a unit of each origin takes before it starts; a group's arcs count their starts."""
        problem = self._problem
        found: dict[int, int] = {}
        for label, _ in self.network.origins:
            beginning = self.labels[label]
            if beginning is not None:
                found[label] = self._space.beginnings[beginning].latency_us
            elif label in problem.start_labels:
                router = problem.start_labels[label]
                found[label] = problem.graph.router_latencies_us[router]
            else:
                found[label] = 0
        return found

    def walk(self, label: int, arcs: Sequence[int]) -> Walk:
        real = len(self._problem.graph.arcs)
        return Walk(self.labels[label], tuple(arc for arc in arcs if arc < real))


def parts(problem: Problem, space: Space, walk: Walk) -> Iterator[Space]:
    """Spaces that make up this one: in each the walk is left at another arc, or kept whole."""
    rest, known, latencies_us = space.beginnings, tuple[int, ...](), problem.latencies_us
    if walk.beginning is None:
        latency_us = problem.graph.router_latencies_us[problem.graph.tails[walk.arcs[0]]]
        yield replace(space, forbidden=space.forbidden | {walk.arcs[0]})
        space = replace(space, open_units=space.open_units - 1)
    else:
        begun = space.beginnings[walk.beginning]
        known, latency_us = begun.arcs, begun.latency_us
        rest = rest[: walk.beginning] + rest[walk.beginning + 1 :]
        narrower = replace(begun, forbidden=begun.forbidden | {walk.arcs[0]})
        yield replace(space, beginnings=(*rest, narrower))
    for at in range(1, len(walk.arcs)):
        arcs = known + walk.arcs[:at]
        if _is_ring(problem, arcs) or _has_better_arc(problem, arcs):
            return
        latency_us += latencies_us[walk.arcs[at - 1]]
        end = problem.graph.heads[arcs[-1]]
        beginning = Beginning(arcs, frozenset((walk.arcs[at],)), end, latency_us)
        yield replace(space, beginnings=(*rest, beginning))
    arcs = known + walk.arcs
    route = problem.route(arcs)
    if route is not None and not _is_ring(problem, arcs) and not _has_better_arc(problem, arcs):
        yield replace(space, beginnings=rest, whole=(*space.whole, route))


def _is_ring(problem: Problem, arcs: tuple[int, ...]) -> bool:
    """Whether the last arc leads back to a router that was passed before."""
    head = problem.graph.heads[arcs[-1]]
    return any(problem.graph.tails[arc] == head for arc in arcs)


def _has_better_arc(problem: Problem, arcs: tuple[int, ...]) -> bool:
    """Whether one arc does as well as the end of this beginning, so that another space has as good.

    Where no router is shared nobody else could use that arc, unless it joins start and end.
    """
    graph, costs, latencies_us = problem.graph, problem.costs, problem.latencies_us
    if not problem.places.lone or len(arcs) == 1:
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
    """Each label with all others that leave by the arcs of the same router."""
    return {
        label: tuple(other for other in (router, *labels) if other != label)
        for router, labels in twins.items()
        for label in (router, *labels)
    }
