"""Cache of path searches: most subscriptions repeat a search that another has caused before.

A result is kept until the topology changes. Its paths may have become full or slow meanwhile, so
the planner checks them. A search that failed because of latency, or because it reached its limit,
is kept until a predicted latency changes too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, assert_never

from msgspec import Struct, structs

from gridstat.broker.capacity.allocation import Gates
from gridstat.broker.capacity.gate_paths import (
    GateGraphs,
    entry_name,
    exit_name,
    is_exact,
    without_gates,
)
from gridstat.model.paths import Found, NotFound, disjoint_paths
from gridstat.model.paths.budget import STEPS_PER_S_MAX, Budget
from gridstat.model.paths.search import BUDGET_S
from gridstat.model.qos import PATH_ROUTERS_MAX
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.capacity.resources import Resources
    from gridstat.model.paths import PathGraph

CACHED_MAX: Final = 65_536
SEARCH_BUDGET_S: Final = BUDGET_S
SEARCHES_PER_REQUEST: Final = 2
"""Search budgets of one request; a refused one may search a dozen times, few of them for long."""
SEARCHES_PER_TURN: Final = 2
"""Search budgets of all contracts that one turn of the broker decides; others wait meanwhile."""
SPLITS_S: Final = 0.25
"""Time for all splits by bands in one turn of the broker, or for one request outside of a turn."""
ALL_S: Final = 10.0**9
"""Seconds that no broker lives."""
_NONE_FAVOURED: Final[frozenset[int]] = frozenset()
REUSE_COST: Final = 1
"""Cost of a channel that carries the variable already: low, but a shorter path is better."""


class PathQuery(Struct, frozen=True):
    """Parameters of a path search; `bounds_us` are latency bounds without the end-points.

    Gates are those of a segment whose every gate has one path.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    bounds_us: tuple[int, ...]
    excluded_channels: frozenset[int]
    excluded_routers: frozenset[str]
    favoured_channels: frozenset[int]
    entries: Gates = ()
    exits: Gates = ()
    single_routers: frozenset[str] = frozenset()
    """Routers with room for one of the paths, and not for two."""
    is_paired: bool = False
    """True if each entry leads to the exit at its place."""


class PathCache:
    """Cache whose answers are those of `disjoint_paths` on the present topology version."""

    def __init__(self, resources: Resources, clock: Callable[[], float], budget_s: float) -> None:
        self._resources = resources
        self._clock = clock
        self._budget_s = budget_s
        self._version = resources.topology_version
        self._gate_graphs = GateGraphs(resources)
        self._cached: dict[PathQuery, Found | NotFound] = {}
        self._refused: dict[PathQuery, NotFound] = {}
        """Refusals that hold for the latencies of one graph."""
        self._refused_by: PathGraph | None = None
        self._turn: Budget | None = None
        self._elsewhere_ns = 0
        self._budget = Budget(clock, SEARCHES_PER_REQUEST * budget_s)
        self._all_splits = Budget(clock, ALL_S)
        self.splits = Budget(clock, SPLITS_S, whole=self._all_splits)
        """Budget of the splits by bands, which leaves that of the searches as it is."""

    def begin(self) -> None:
        """Start the budget that all searches of one request share."""
        seconds = SEARCHES_PER_REQUEST * self._budget_s
        if self._turn is None:
            self._budget = Budget(self._clock, seconds)
            self.splits = Budget(self._clock, SPLITS_S, whole=self._all_splits)
        else:
            self._budget = self._turn.at_most(seconds)

    def begin_turn(self, left_s: float = ALL_S) -> None:
        """Start a budget that several requests share, until `end_turn`: `left_s` at most."""
        self._turn = Budget(self._clock, min(left_s, SEARCHES_PER_TURN * self._budget_s))
        self.splits = Budget(self._clock, SPLITS_S, whole=self._all_splits)
        self._elsewhere_ns = 0

    def end_turn(self) -> int:
        """Return the nanoseconds of searches and splits since `begin_turn`, by their steps."""
        turn, self._turn = self._turn, None
        elsewhere_ns, self._elsewhere_ns = self._elsewhere_ns, 0
        steps = 0 if turn is None else turn.steps + self.splits.steps
        return max(0, steps * NS_PER_S // STEPS_PER_S_MAX - elsewhere_ns)

    def charged_elsewhere(self, took_ns: int) -> None:
        """Leave out of the present turn's time what was charged to somebody else."""
        self._elsewhere_ns += took_ns

    @property
    def split_ns(self) -> int:
        """Nanoseconds of all splits since the start, by their steps."""
        return self._all_splits.steps * NS_PER_S // STEPS_PER_S_MAX

    def find(self, query: PathQuery, *, is_fresh: bool = False) -> Found | NotFound:
        """Return cached paths or search anew; `is_fresh` searches with present latencies."""
        if self._version != self._resources.topology_version or len(self._cached) >= CACHED_MAX:
            self._cached.clear()
            self._version = self._resources.topology_version
        graph = self._resources.graph(is_fresh=is_fresh)
        if self._refused_by is not graph or len(self._refused) >= CACHED_MAX:
            self._refused.clear()
            self._refused_by = graph
        if query in self._refused:
            return self._refused[query]
        known = None if is_fresh else self._cached_answer(query)
        if known is not None:
            return known
        has_time = self._budget.left_s() >= self._budget_s
        answer = self._search(graph, query, is_fresh=is_fresh)
        if _longest_path_routers(answer) > PATH_ROUTERS_MAX and query.favoured_channels:
            # Channels that carry the variable already are nearly free, and may form a long detour.
            plain = structs.replace(query, favoured_channels=_NONE_FAVOURED)
            answer = self._search(graph, plain, is_fresh=is_fresh)
        routers = _longest_path_routers(answer)
        if routers > PATH_ROUTERS_MAX:
            return NotFound("length", routers=routers)
        if _is_lasting(answer):
            self._cached[query] = answer
        elif isinstance(answer, NotFound) and (answer.reason != "budget" or has_time):
            self._refused[query] = answer
        return answer

    def _search(self, graph: PathGraph, query: PathQuery, *, is_fresh: bool) -> Found | NotFound:
        found = self._search_in(graph, query.sources, query.targets, query)
        entries, exits, is_paired = query.entries, query.exits, query.is_paired
        if not (entries or exits) or is_exact(entries, exits, found, is_paired=is_paired):
            return found
        graph = self._gate_graphs.graph(entries, exits, is_fresh=is_fresh, is_paired=is_paired)
        sources = tuple(entry_name(number) for _, number in entries) or query.sources
        targets = tuple(exit_name(number) for _, number in exits) or query.targets
        found = self._search_in(graph, sources, targets, query)
        return without_gates(entries, exits, found) if isinstance(found, Found) else found

    def _search_in(
        self, graph: PathGraph, sources: Sequence[str], targets: Sequence[str], query: PathQuery
    ) -> Found | NotFound:
        return disjoint_paths(
            graph,
            sources,
            targets,
            query.bounds_us,
            excluded_channels=query.excluded_channels,
            excluded_routers=query.excluded_routers,
            single_routers=query.single_routers,
            cheap_channels=dict.fromkeys(query.favoured_channels, REUSE_COST),
            budget_s=min(self._budget_s, self._budget.left_s()),
            clock=self._clock,
            whole=self._budget,
        )

    def _cached_answer(self, query: PathQuery) -> Found | NotFound | None:
        known = self._cached.get(query)
        if known is not None or not query.favoured_channels:
            return known
        # Paths of another variable between the same ends are as good if none could add less.
        plain = self._cached.get(
            PathQuery(
                query.sources,
                query.targets,
                query.bounds_us,
                query.excluded_channels,
                query.excluded_routers,
                _NONE_FAVOURED,
                query.entries,
                query.exits,
                query.single_routers,
                query.is_paired,
            )
        )
        if isinstance(plain, Found) and self._adds_least(plain, query):
            return plain
        return None

    def _adds_least(self, found: Found, query: PathQuery) -> bool:
        """Return whether no other paths would put the variable on fewer new channels."""
        favoured = query.favoured_channels
        added = sum([len(path.channel_ids) for path in found.paths])
        for path in found.paths:
            added -= len(favoured.intersection(path.channel_ids))
        if added == 0:
            return True
        return added <= len(found.paths) and not any(
            self._resources.ends_at(number, query.targets) for number in favoured
        )


def _longest_path_routers(answer: Found | NotFound) -> int:
    """Return the number of routers on the longest path."""
    if isinstance(answer, NotFound):
        return 0
    return max([len(path.routers) for path in answer.paths])


def _is_lasting(answer: Found | NotFound) -> bool:
    match answer:
        case Found():
            return True
        case NotFound():
            return answer.reason in {"disconnected", "disjoint"}
        case _:
            assert_never(answer)
