"""Path planning across children: disjoint paths over the border graph.

A plan says which children a contract crosses and over which channels. The graph of one query is
small: the two ends, and the children on the paths that a first search between the ends has found.
All children are searched only if that yields no plan. `latency_shares.py` turns a plan into
requests to children.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct

from gridstat.broker.tree.border_graph import ASSUMED_LATENCY_US
from gridstat.model.paths import Found, NotFound, disjoint_paths
from gridstat.model.paths.graph import Arc, PathGraph
from gridstat.model.qos import PATH_ROUTERS_MAX
from gridstat.net.command.segment_messages import Gate

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.paths import FoundPath

START: Final = "(start)"
END: Final = "(end)"
ATTEMPTS_MAX: Final = 8
LAYOUTS_MAX: Final = 4_096
ALL_CHILDREN_MAX: Final = 8
"""Maximum number of children for which every query searches all of them."""
FIRST_LOOK_PATHS: Final = 3
NEIGHBOURS_MAX: Final = 64
_FAR_US: Final = 1 << 34
_HOP_COST: Final = 1_000

Use = tuple[str, str, int]
"""One edge of a plan: an abstract link (from, to, 0), or a channel or gate (from, to, number)."""


class Ends(Struct, frozen=True):
    """One side of a query: an end-point below a child, or gates of the parent."""

    child: str = ""
    near: tuple[tuple[str, int], ...] = ()
    gates: tuple[Gate, ...] = ()


class ScopePathQuery(Struct, frozen=True):
    """A request for `count` disjoint paths, none slower than `bound_us`."""

    starts: Ends
    ends: Ends
    count: int
    bound_us: int


class Step(Struct, frozen=True):
    """One child on a path: its entry and exit, its estimated latency, and the edges used."""

    child: str
    entry: Gate | None
    exit: Gate | None
    estimate_us: int
    uses: tuple[Use, ...]


class PlannedPath(Struct, frozen=True):
    """Children and the channels between them, in order; one child more than channels."""

    steps: tuple[Step, ...]
    channel_ids: tuple[int, ...]


class _Layout(Struct):
    """The graph of one query; `uses` are its arcs in the order of their numbers."""

    graph: PathGraph
    uses: list[Use]
    number_of: dict[Use, int]
    estimates_us: list[int]


class PathPlanner:
    """Layouts and answers are cached until the border graph changes, since most queries repeat."""

    def __init__(self, context: TreeContext, graph: BorderGraph) -> None:
        self._context = context
        self._graph = graph
        self._version = graph.version
        self._layouts: dict[tuple[Ends, Ends, bool], _Layout] = {}
        self._answers: dict[
            tuple[ScopePathQuery, frozenset[Use]], list[PlannedPath] | NotFound
        ] = {}
        self._corridors: dict[tuple[tuple[str, ...], tuple[str, ...]], frozenset[str]] = {}

    def find(self, query: ScopePathQuery, excluded: frozenset[Use]) -> list[PlannedPath] | NotFound:
        if self._version != self._graph.version or len(self._layouts) > LAYOUTS_MAX:
            self._version = self._graph.version
            self._layouts.clear()
            self._corridors.clear()
            self._answers.clear()
        known = self._answers.get((query, excluded))
        if known is not None:
            return known
        answer = self._search(query, excluded, is_whole=False)
        if isinstance(answer, NotFound) and len(self._children()) > ALL_CHILDREN_MAX:
            answer = self._search(query, excluded, is_whole=True)
        if len(self._answers) > LAYOUTS_MAX:
            self._answers.clear()
        self._answers[query, excluded] = answer
        return answer

    def _search(
        self, query: ScopePathQuery, excluded: frozenset[Use], *, is_whole: bool
    ) -> list[PlannedPath] | NotFound:
        layout = self._layout(query, is_whole=is_whole)
        closed = {layout.number_of[use] for use in excluded if use in layout.number_of}
        answer: NotFound = NotFound("disconnected")
        for _ in range(ATTEMPTS_MAX):
            found = disjoint_paths(
                layout.graph,
                (START,),
                (END,),
                (query.bound_us,) * query.count,
                clock=_no_clock,
                excluded_channels=closed,
            )
            if isinstance(found, NotFound):
                return found if found.reason != "disconnected" else answer
            longest = max(len(path.routers) for path in found.paths) - len((START, END))
            if longest > PATH_ROUTERS_MAX:
                return NotFound("length", routers=longest)
            planned = [self._planned(query, layout, path) for path in found.paths]
            fault = self._fault(planned)
            if fault is None:
                return planned
            answer = NotFound("disjoint", paths_max=query.count - 1)
            closed.add(layout.number_of[fault])
        return answer

    def _children(self) -> Collection[str]:
        return self._context.state.families.children

    # The graph of a query.

    def _layout(self, query: ScopePathQuery, *, is_whole: bool) -> _Layout:
        key = (query.starts, query.ends, is_whole)
        known = self._layouts.get(key)
        if known is None:
            known = self._layouts[key] = self._lay_out(query, is_whole=is_whole)
        return known

    def _lay_out(self, query: ScopePathQuery, *, is_whole: bool) -> _Layout:
        children = frozenset(self._children()) if is_whole else self._corridor(query)
        uses: list[Use] = []
        estimates: list[int] = []
        for use, estimate_us in self._uses(query, children):
            uses.append(use)
            estimates.append(estimate_us)
        arcs = [
            Arc(number, use[0], use[1], _HOP_COST if use[2] else 1, estimate_us)
            for number, (use, estimate_us) in enumerate(zip(uses, estimates, strict=True))
        ]
        graph = PathGraph(arcs, {START: 0, END: 0})
        return _Layout(graph, uses, {use: at for at, use in enumerate(uses)}, estimates)

    def _uses(self, query: ScopePathQuery, children: frozenset[str]) -> Iterator[tuple[Use, int]]:
        channels, families = self._context.state.channels, self._context.state.families
        ends = {query.starts.child, query.ends.child}
        numbers = {number for child in children for number in self._graph.channels_of(child)}
        for number in sorted(numbers):
            channel = channels.accounts[number].channel
            both = (families.child_at(channel.from_router), families.child_at(channel.to_router))
            if both[0] in children and both[1] in children:
                use = (channel.from_router, channel.to_router, number)
                yield use, channels.latency_us(number)
        for child in sorted(children - ends):
            for (from_router, to_router), abstract_link in self._graph.abstract_links(
                child
            ).items():
                yield (from_router, to_router, 0), abstract_link.latency_us
        for router, latency_us in query.starts.near:
            yield (START, router, 0), latency_us
        for gate in query.starts.gates:
            yield (START, gate.router, gate.channel_id), 0
        for router, latency_us in query.ends.near:
            yield (router, END, 0), latency_us
        for gate in query.ends.gates:
            yield (gate.router, END, gate.channel_id), 0

    def _corridor(self, query: ScopePathQuery) -> frozenset[str]:
        """Return the children on the best few paths between the two ends, full or not."""
        families = self._context.state.families
        if len(families.children) <= ALL_CHILDREN_MAX:
            return frozenset(families.children)
        sources, targets = _routers(query.starts), _routers(query.ends)
        known = self._corridors.get((sources, targets))
        if known is not None:
            return known
        ends = [
            {child for name in names if (child := families.child_at(name)) is not None}
            for names in (sources, targets)
        ]
        children = ends[0] | ends[1]
        graph = self._graph.part(self._between(*ends))
        alive = [
            tuple(name for name in names if name in graph.number_of) for names in (sources, targets)
        ]
        count = FIRST_LOOK_PATHS
        while count and all(alive):
            found = disjoint_paths(graph, alive[0], alive[1], (_FAR_US,) * count, clock=_no_clock)
            if isinstance(found, Found):
                names = {name for path in found.paths for name in path.routers}
                children |= {families.child_at(name) or "" for name in names}
                break
            count = min(count - 1, found.paths_max)
        corridor = frozenset(children)
        self._corridors[sources, targets] = corridor
        return corridor

    def _between(self, starts: set[str], ends: set[str]) -> set[str]:
        """Return the children around both ends until they meet, and one step farther if few."""
        seen = [set(starts), set(ends)]
        edges = [set(starts), set(ends)]
        while not seen[0] & seen[1] and edges[0] and edges[1]:
            side = 0 if len(edges[0]) <= len(edges[1]) else 1
            edges[side] = self._expand(edges[side], seen[side])
        for side in (0, 1):
            if len(seen[0] | seen[1]) <= NEIGHBOURS_MAX:
                self._expand(edges[side], seen[side])
        return seen[0] | seen[1]

    def _expand(self, edge: set[str], seen: set[str]) -> set[str]:
        """Return the unseen neighbours of these children, and add them to `seen`."""
        onward = {other for child in edge for other in self._graph.neighbours(child)} - seen
        seen |= onward
        return onward

    # From router paths to plans.

    def _planned(self, query: ScopePathQuery, layout: _Layout, path: FoundPath) -> PlannedPath:
        families, own = self._context.state.families, self._context.state.channels.accounts
        first = layout.uses[path.channel_ids[0]]
        child = query.starts.child or families.child_at(first[1]) or ""
        entry = Gate(router=first[1], channel_id=first[2]) if first[2] else None
        uses, estimate_us = [first], layout.estimates_us[path.channel_ids[0]]
        steps: list[Step] = []
        channel_ids: list[int] = []
        for number in path.channel_ids[1:]:
            use = layout.uses[number]
            if use[2] in own and use[1] != END:
                exit_gate = Gate(router=use[0], channel_id=use[2])
                uses.append(use)
                steps.append(
                    Step(child, entry, exit_gate, estimate_us or ASSUMED_LATENCY_US, tuple(uses))
                )
                child = families.child_at(use[1]) or ""
                entry = Gate(router=use[1], channel_id=use[2])
                channel_ids.append(use[2])
                uses, estimate_us = [use], 0
            else:
                uses.append(use)
                estimate_us += layout.estimates_us[number]
        last = layout.uses[path.channel_ids[-1]]
        last_gate = Gate(router=last[0], channel_id=last[2]) if last[2] else None
        steps.append(Step(child, entry, last_gate, estimate_us or ASSUMED_LATENCY_US, tuple(uses)))
        return PlannedPath(tuple(steps), tuple(channel_ids))

    def _fault(self, paths: list[PlannedPath]) -> Use | None:
        """Return an edge to exclude: of a child that one path crosses twice, or of a trap."""
        crossed: dict[str, list[Step]] = {}
        for path in paths:
            seen: set[str] = set()
            for step in path.steps:
                if step.child in seen:
                    return step.uses[0]
                seen.add(step.child)
                if step.entry is not None and step.exit is not None:
                    crossed.setdefault(step.child, []).append(step)
        for child, steps in crossed.items():
            for at, one in enumerate(steps):
                for other in steps[at + 1 :]:
                    if self._is_trap(child, one, other):
                        return _abstract_link_of(one) or _abstract_link_of(other)
        return None

    def _is_trap(self, child: str, one: Step, other: Step) -> bool:
        entries = [step.entry.router for step in (one, other) if step.entry is not None]
        exits = [step.exit.router for step in (one, other) if step.exit is not None]
        return self._graph.is_trap(child, entries, exits)


def _abstract_link_of(step: Step) -> Use | None:
    return next((use for use in step.uses if not use[2] and START not in use), None)


def _routers(ends: Ends) -> tuple[str, ...]:
    return (
        *(router for router, _ in ends.near),
        *(gate.router for gate in ends.gates),
    )


def _no_clock() -> float:
    return 0.0
