"""Path planning across children: disjoint paths over the border graph.

A plan says which children a contract crosses and over which channels. The graph of one query is
small: the two ends, and the children on the paths that a first search between the ends has found.
All children are searched only if that yields no plan. `latency_shares.py` turns a plan into
requests to children.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from gridstat.broker.capacity.gate_paths import pair_name
from gridstat.broker.tree.border_graph import ASSUMED_LATENCY_US
from gridstat.model.paths import Found, NotFound, disjoint_paths
from gridstat.model.paths.graph import Arc, PathGraph
from gridstat.model.paths.search import BUDGET_S
from gridstat.model.qos import PATH_ROUTERS_MAX
from gridstat.net.command.segment_messages import Gate, Nearness
from gridstat.net.command.tree_messages import WAYS_MAX

if TYPE_CHECKING:
    from collections.abc import Collection, Container, Iterable, Iterator, Sequence

    from gridstat.broker.tree.border_graph import BorderGraph
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.model.paths import FoundPath
    from gridstat.model.paths.budget import Budget

START: Final = "(start)"
END: Final = "(end)"
ATTEMPTS_MAX: Final = 64
"""Maximum number of searches in one graph that leave out links which exclude each other."""
LAYOUTS_MAX: Final = 4_096
ALL_CHILDREN_MAX: Final = 8
"""Maximum number of children for which every query searches all of them."""
FIRST_LOOK_PATHS: Final = 3
NEIGHBOURS_MAX: Final = 64
_FAR_US: Final = 1 << 34
_UNDECIDED: Final = NotFound("budget")
_LEAVING: Final = " >"
_HOP_COST: Final = 1_000

Use = tuple[str, str, int]
"""One edge of a plan: a channel or gate (from, to, number), or an abstract link (from, to, 0).

Where a child has several disjoint paths between two borders, the link has copies: 0, -1, and so on.
"""


class Ends(Struct, frozen=True):
    """One side of a query: an end-point below a child, or gates of the parent.

    It is guessed if the child has not said how near all of its borders are.
    """

    child: str = ""
    near: tuple[Nearness, ...] = ()
    gates: tuple[Gate, ...] = ()
    is_guessed: bool = False

    @property
    def inner(self) -> list[Nearness]:
        """Return the distances of the borders that are no edge of the end-point."""
        return [found for found in self.near if not found.is_edge]

    @property
    def edges(self) -> frozenset[str]:
        """Return the borders that are edges of the end-point, so that paths may share them."""
        return frozenset([found.router for found in self.near if found.is_edge])


class ScopePathQuery(Struct, frozen=True):
    """A request for `count` disjoint paths, none slower than `bound_us`.

    With `is_paired` each gate at the start leads to the one at its place at the end.
    """

    starts: Ends
    ends: Ends
    count: int
    bound_us: int
    is_paired: bool = False


class PathSearch(Struct, frozen=True):
    """A query with its conditions: links left out, and links that cannot be used together."""

    query: ScopePathQuery
    is_node_disjoint: bool = False
    excluded: frozenset[Use] = frozenset()
    conflicts: frozenset[frozenset[Use]] = frozenset()


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
    """The graph of one query; `uses` are its arcs in the order of their numbers.

    A border router is two nodes: channels lead into the first and leave from the second, and links
    inside the child lead from the first to the second. So no plan asks a child for one path where
    the child would see two.
    """

    graph: PathGraph
    uses: list[Use]
    number_of: dict[Use, int]
    estimates_us: list[int]

    def numbers_from(self, use: Use) -> list[int]:
        """Return the arcs of a link and of its higher copies, or the arc of a channel."""
        found = [self.number_of[use]] if use in self.number_of else []
        while is_inside(use) and (use := (use[0], use[1], use[2] - 1)) in self.number_of:
            found.append(self.number_of[use])
        return found


class PathPlanner:
    """Layouts and answers are cached until the border graph changes, since most queries repeat."""

    def __init__(self, context: TreeContext, graph: BorderGraph) -> None:
        self._context = context
        self._graph = graph
        self._version = graph.version
        self._layouts: dict[tuple[Ends, Ends, bool, bool], _Layout] = {}
        self._answers: dict[PathSearch, list[PlannedPath] | NotFound] = {}
        self._corridors: dict[tuple[tuple[str, ...], tuple[str, ...]], frozenset[str]] = {}

    def find(self, search: PathSearch, budget: Budget) -> list[PlannedPath] | NotFound:
        """Return disjoint paths that keep to the search's conditions, or why there are none.

        The steps are charged to the budget. A search that ended without a verdict is remembered if
        it had all of its time, until the graph changes.
        """
        if self._version != self._graph.version or len(self._layouts) > LAYOUTS_MAX:
            self._version = self._graph.version
            self._layouts.clear()
            self._corridors.clear()
            self._answers.clear()
        known = self._answers.get(search)
        if known is not None:
            return known
        has_time = budget.left_s() >= BUDGET_S
        own = budget.at_most(BUDGET_S)
        answer = self._search(search, own, is_whole=False)
        if isinstance(answer, NotFound) and len(self._children()) > ALL_CHILDREN_MAX:
            answer = self._search(search, own, is_whole=True)
        if isinstance(answer, NotFound) and answer.reason == "budget" and not has_time:
            return answer
        if len(self._answers) > LAYOUTS_MAX:
            self._answers.clear()
        self._answers[search] = answer
        return answer

    def _search(
        self, search: PathSearch, budget: Budget, *, is_whole: bool
    ) -> list[PlannedPath] | NotFound:
        """Search, and search again without one of the links that cannot be used together."""
        query = search.query
        layout = self._layout(query, budget, is_whole=is_whole)
        first = frozenset(
            layout.number_of[use] for use in search.excluded if use in layout.number_of
        )
        met: list[NotFound] = []
        open_, seen = deque([first]), {first}
        for _ in range(ATTEMPTS_MAX):
            if not open_ or not budget.left_s():
                break
            closed = open_.popleft()
            found = disjoint_paths(
                layout.graph,
                (START,),
                (END,),
                (query.bound_us,) * query.count,
                clock=no_clock,
                excluded_channels=closed,
                budget_s=min(BUDGET_S, budget.left_s()),
                whole=budget,
            )
            if isinstance(found, NotFound):
                met.append(found)
                continue
            if search.is_node_disjoint and not found.is_node_disjoint:
                continue
            longest = max(_border_count(path) for path in found.paths)
            if longest > PATH_ROUTERS_MAX:
                return NotFound("length", routers=longest)
            budget.charge(sum(len(path.channel_ids) for path in found.paths))
            planned = _renumbered([self._planned(query, layout, path) for path in found.paths])
            conflict = self._conflict(planned, search)
            if conflict is None:
                return planned
            for use in highest_copies(conflict):
                more = closed.union(layout.numbers_from(use))
                if more not in seen:
                    seen.add(more)
                    open_.append(more)
        if open_:
            return _UNDECIDED  # Nobody has looked at the rest.
        return _verdict(met, query.count, is_first=len(seen) == 1)

    def _children(self) -> Collection[str]:
        return self._context.state.families.children

    # The graph of a query.

    def _layout(self, query: ScopePathQuery, budget: Budget, *, is_whole: bool) -> _Layout:
        key = (query.starts, query.ends, query.is_paired, is_whole)
        known = self._layouts.get(key)
        if known is None:
            known = self._lay_out(query, budget, is_whole=is_whole)
            if not budget.was_spent:
                self._layouts[key] = known
            budget.charge(len(known.uses))
        return known

    def _lay_out(self, query: ScopePathQuery, budget: Budget, *, is_whole: bool) -> _Layout:
        children = frozenset(self._children()) if is_whole else self._corridor(query, budget)
        own = self._context.state.channels.accounts
        pairs = _pair_risks(query)
        uses: list[Use] = []
        estimates: list[int] = []
        for use, estimate_us in self._uses(query, children):
            uses.append(use)
            estimates.append(estimate_us)
        arcs = [
            Arc(
                number,
                *_nodes(use, query, own),
                cost=1 if is_inside(use) else _HOP_COST,
                latency_us=estimate_us,
                risks=own[use[2]].channel.risk_groups if use[2] in own else pairs.get(use, ()),
            )
            for number, (use, estimate_us) in enumerate(zip(uses, estimates, strict=True))
        ]
        graph = PathGraph(arcs, {START: 0, END: 0})
        return _Layout(graph, uses, {use: at for at, use in enumerate(uses)}, estimates)

    def _uses(self, query: ScopePathQuery, children: frozenset[str]) -> Iterator[tuple[Use, int]]:
        """Yield every edge of the graph with its latency."""
        yield from self._channels(query, children)
        for child in sorted(children - {query.starts.child, query.ends.child}):
            links = self._graph.abstract_links(child)
            for (from_router, to_router), abstract_link in links.items():
                for use in _copies(from_router, to_router, abstract_link.link_disjoint):
                    yield use, abstract_link.latency_us
            for router in self._borders_of(child):
                for use in _copies(router, router, WAYS_MAX):
                    yield use, 0
        for near in query.starts.inner:
            for use in _copies(START, near.router, near.link_disjoint):
                yield use, near.latency_us
        for near in query.ends.inner:
            for use in _copies(near.router, END, near.link_disjoint):
                yield use, near.latency_us
        for gate in query.starts.gates:
            yield (START, gate.router, gate.channel_id), 0
        for gate in query.ends.gates:
            yield (gate.router, END, gate.channel_id), 0

    def _channels(
        self, query: ScopePathQuery, children: frozenset[str]
    ) -> Iterator[tuple[Use, int]]:
        """Yield the channels between these children.

        No path comes back to the child of the publisher, or leaves that of the subscriber.
        """
        channels, families = self._context.state.channels, self._context.state.families
        numbers = {number for child in children for number in self._graph.channels_of(child)}
        begin, end = children - {query.ends.child}, children - {query.starts.child}
        for number in sorted(numbers):
            channel = channels.accounts[number].channel
            from_router, to_router = channel.from_router, channel.to_router
            if families.child_at(from_router) in begin and families.child_at(to_router) in end:
                yield (from_router, to_router, number), channels.latency_us(number)

    def _corridor(self, query: ScopePathQuery, budget: Budget) -> frozenset[str]:
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
            found = disjoint_paths(
                graph,
                alive[0],
                alive[1],
                (_FAR_US,) * count,
                clock=no_clock,
                budget_s=min(BUDGET_S, budget.left_s()),
                whole=budget,
            )
            if isinstance(found, Found):
                names = {name for path in found.paths for name in path.routers}
                children |= {families.child_at(name) or "" for name in names}
                break
            count = min(count - 1, found.paths_max)
        corridor = frozenset(children)
        if budget.was_spent:
            return corridor  # With more time it may be wider.
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

    def _borders_of(self, child: str) -> list[str]:
        """Return the routers of a child at which paths may both enter and leave."""
        accounts = self._context.state.channels.accounts
        families = self._context.state.families
        found = {
            end
            for number in self._graph.channels_of(child)
            for end in (accounts[number].channel.from_router, accounts[number].channel.to_router)
            if families.child_at(end) == child
        }
        return sorted(found.union(self._graph.above(child)))

    # From router paths to plans.

    def _planned(self, query: ScopePathQuery, layout: _Layout, path: FoundPath) -> PlannedPath:
        families, own = self._context.state.families, self._context.state.channels.accounts
        first = layout.uses[path.channel_ids[0]]
        child = query.starts.child or families.child_at(first[1]) or ""
        entry: Gate | None = None
        exit_gate: Gate | None = None
        uses: list[Use] = []
        estimate_us = 0
        steps: list[Step] = []
        channel_ids: list[int] = []
        for number in path.channel_ids:
            use = layout.uses[number]
            uses.append(use)
            if is_inside(use):
                estimate_us += layout.estimates_us[number]
            elif use[0] == START:
                entry = Gate(router=use[1], channel_id=use[2])
            elif use[1] == END:
                exit_gate = Gate(router=use[0], channel_id=use[2])
            elif use[2] in own:
                leaving = Gate(router=use[0], channel_id=use[2])
                steps.append(
                    Step(child, entry, leaving, estimate_us or ASSUMED_LATENCY_US, tuple(uses))
                )
                child = families.child_at(use[1]) or ""
                entry = Gate(router=use[1], channel_id=use[2])
                channel_ids.append(use[2])
                uses, estimate_us = [use], 0
        steps.append(Step(child, entry, exit_gate, estimate_us or ASSUMED_LATENCY_US, tuple(uses)))
        return PlannedPath(tuple(steps), tuple(channel_ids))

    def _conflict(self, paths: Sequence[PlannedPath], search: PathSearch) -> Collection[Use] | None:
        """Return links that no plan may use together, and that this one does; None without any."""
        used = {use for path in paths for step in path.steps for use in step.uses}
        for conflict in search.conflicts:
            if conflict <= used:
                return sorted(conflict)
        edges = search.query.starts.edges | search.query.ends.edges
        return self._shared_border(paths, edges) if search.is_node_disjoint else None

    def _shared_border(
        self, paths: Sequence[PlannedPath], edges: frozenset[str]
    ) -> Collection[Use] | None:
        """Return links of two paths that share a border router, or that meet in a trap."""
        crossed: dict[str, list[Step]] = {}
        at_router: dict[str, tuple[PlannedPath, Step]] = {}
        for path in paths:
            for step in path.steps:
                gates = [gate for gate in (step.entry, step.exit) if gate is not None]
                for router in {gate.router for gate in gates} - edges:
                    other = at_router.setdefault(router, (path, step))
                    if other[1] is not step:
                        return conflict_of([step, other[1]], is_node_disjoint=True)
                for other_step in crossed.setdefault(step.child, []):
                    if self._is_trap(step.child, step, other_step):
                        return conflict_of([step, other_step], is_node_disjoint=True)
                crossed[step.child].append(step)
        return None

    def _is_trap(self, child: str, one: Step, other: Step) -> bool:
        entries = [step.entry.router for step in (one, other) if step.entry is not None]
        exits = [step.exit.router for step in (one, other) if step.exit is not None]
        return self._graph.is_trap(child, entries, exits)


def _verdict(met: Sequence[NotFound], count: int, *, is_first: bool) -> NotFound:
    """Return what all searches together have shown; each left out other links than the others.

    With `is_first` there was one search, and nothing was left out. A search may have found nothing
    for latency, where the paths that it knows without a bound exclude each other all the same.
    """
    undecided = next((found for found in met if found.reason == "budget"), None)
    if undecided is not None:
        return undecided
    late = [found for found in met if found.reason == "latency"]
    if late:
        return min(late, key=lambda found: found.latency_us_best)
    return met[0] if met and is_first else NotFound("disjoint", paths_max=count - 1)


def conflict_of(steps: Iterable[Step], *, is_node_disjoint: bool) -> frozenset[Use]:
    """Return the links by which these steps of one child exclude each other.

    A step that enters and leaves at one router uses no link inside the child. It bars the router
    to node-disjoint paths, and bars nothing to others.
    """
    found: set[Use] = set()
    for step in steps:
        inside = [use for use in step.uses if is_inside(use)]
        is_passing = all(use[0] == use[1] for use in inside)
        if not is_passing:
            found.update(inside)
        elif is_node_disjoint:
            found.update(use for use in step.uses if not is_inside(use))
    return frozenset(found)


def is_inside(use: Use) -> bool:
    """Return whether an edge of a plan lies inside a child, and is neither channel nor gate."""
    return use[2] <= 0


def _nodes(use: Use, query: ScopePathQuery, own: Container[int]) -> tuple[str, str]:
    """Return the nodes of a graph between which an edge leads; the second of a router has a mark.

    A gate is the parent's channel: the paths enter by it at the first node, or leave at the second.
    Edges of the end-points are the start and the end themselves.
    """
    here, there, _ = use
    if is_inside(use):
        return (here, _leaving(there)) if there != END else (here, there)
    begins = START if here in query.starts.edges else _leaving(here)
    ends = END if there in query.ends.edges else there
    return (here if here == START else begins), ends


def _pair_risks(query: ScopePathQuery) -> dict[Use, tuple[str, ...]]:
    """Return a common risk for both gates of each pair, so that one path has the two of them."""
    if not query.is_paired:
        return {}
    risks: dict[Use, tuple[str, ...]] = {}
    gates = zip(query.starts.gates, query.ends.gates, strict=True)
    for at, (entry, leaving) in enumerate(gates):
        risks[START, entry.router, entry.channel_id] = (pair_name(at),)
        risks[leaving.router, END, leaving.channel_id] = (pair_name(at),)
    return risks


def _border_count(path: FoundPath) -> int:
    return len({name.removesuffix(_LEAVING) for name in path.routers} - {START, END})


def highest_copies(uses: Iterable[Use]) -> list[Use]:
    """Return the highest copy of each link, and all channels."""
    found = {(use[0], use[1], max(0, use[2])): use for use in sorted(uses, reverse=True)}
    return sorted(found.values())


def _leaving(router: str) -> str:
    return router + _LEAVING


def _copies(from_router: str, to_router: str, count: int) -> list[Use]:
    return [(from_router, to_router, -copy) for copy in range(count)]


def _renumbered(paths: list[PlannedPath]) -> list[PlannedPath]:
    """Return the paths with the first copies of each link, since all copies are alike."""
    counts: dict[tuple[str, str], int] = {}
    found = []
    for path in paths:
        steps = []
        for step in path.steps:
            uses = []
            for use in step.uses:
                if is_inside(use):
                    copy = counts[use[:2]] = counts.get(use[:2], -1) + 1
                    uses.append((use[0], use[1], -copy))
                else:
                    uses.append(use)
            steps.append(structs.replace(step, uses=tuple(uses)))
        found.append(PlannedPath(tuple(steps), path.channel_ids))
    return found


def _routers(ends: Ends) -> tuple[str, ...]:
    return (
        *(near.router for near in ends.near),
        *(gate.router for gate in ends.gates),
    )


def no_clock() -> float:
    """Return no time: brokers count the steps of a search."""
    return 0.0
