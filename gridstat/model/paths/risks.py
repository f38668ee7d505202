"""Paths that have no risk in common, where the search without risks has found some that do.

Disjointness by risks is hard in general (NP-hard for two paths already), so this is a search by
conflicts (after Sharon and others), within the budget. It begins with the paths that only share no
channel: if they share no risk either, they are the answer, and if there are none, there are none
with risks. Otherwise what two paths have in common is denied to one of them in turn:

- The two directions of a link: no path uses both, so one of them is denied to all paths.
- A named risk: at most one path runs it. That path is parted from the others, and all others are
  denied the channels of the risk. Parted paths are searched apart.
- A channel, a router or an edge that parted paths share: denied to either in turn.

Every answer is in one of the cases that are looked at, so a search that ends within its budget and
finds nothing proves that there is nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from heapq import heappop, heappush
from itertools import combinations
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.paths.problem import bounds_left_us
from gridstat.model.paths.routes import Route
from gridstat.model.paths.solving import Effort, Outcome, solve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gridstat.model.paths.budget import Budget
    from gridstat.model.paths.mask import Mask, Terminals

STEPS_PER_CASE: Final = 64
"""Steps charged for one case, beside the labels of its flows: masks are built anew."""

Rooms = dict[int, int]
"""How many paths may start, or end, at a router."""


class Party(NamedTuple):
    """Some of the paths: they are denied the same arcs and routers, and found by one flow."""

    terminals: Terminals
    bounds_us: tuple[int, ...]
    arcs: frozenset[int] = frozenset()
    routers: frozenset[int] = frozenset()

    def without(self, arcs: Iterable[int], routers: Iterable[int] = ()) -> Party:
        return self._replace(arcs=self.arcs.union(arcs), routers=self.routers.union(routers))

    def is_narrower(self, other: Party) -> bool:
        """Return whether everything that is denied to the other is denied to this one too."""
        is_same = self.terminals == other.terminals and self.bounds_us == other.bounds_us
        return is_same and other.arcs <= self.arcs and other.routers <= self.routers

    def is_kept_by(self, routes: tuple[Route, ...], heads: list[int]) -> bool:
        """Return whether routes found before use nothing that is denied, and have room."""
        if any(not self.arcs.isdisjoint(route.arcs) for route in routes):
            return False
        return all(self.routers.isdisjoint([heads[arc] for arc in one.arcs]) for one in routes)


class Case(NamedTuple):
    """A way to divide the paths, and the cheapest routes of each party for itself."""

    parties: tuple[Party, ...]
    routes: tuple[tuple[Route, ...], ...]

    @property
    def every(self) -> list[Route]:
        return [route for routes in self.routes for route in routes]


def share_risk(mask: Mask, routes: Iterable[Route]) -> bool:
    """Return whether two of these routes have a risk in common."""
    of_arc = mask.graph.risks.of_arc
    if not of_arc:
        return False
    seen: set[int] = set()
    for route in routes:
        run = {risk for arc in route.arcs for risk in of_arc.get(arc, ())}
        if not seen.isdisjoint(run):
            return True
        seen |= run
    return False


def without_common_risks(
    mask: Mask,
    found: Outcome,
    sides: tuple[Terminals, ...],
    whole: tuple[Route, ...],
    bounds_us: tuple[int, ...],
    effort: Effort,
    budget: Budget,
) -> Outcome:
    """Return the outcome of a search without risks, or that of one with risks if two paths share
    one.

    The `sides` are the terminals of that search; their rooms are those of all paths together.
    """
    if found.routes is None or not share_risk(mask, found.routes):
        return found
    if effort is Effort.FLOW_ONLY:
        return Outcome(None, is_certain=False)
    left_us = bounds_left_us([route.latency_us for route in whole], bounds_us)
    answer = _RiskSearch(mask, sides, effort, budget).search(tuple(left_us))
    routes = None if answer.routes is None else (*whole, *answer.routes)
    return Outcome(routes, answer.is_certain)


class _RiskSearch:
    """Search among the cases, most promising first; `_is_certain` while all flows were complete."""

    __slots__ = (
        "_budget",
        "_count",
        "_edges",
        "_effort",
        "_ends",
        "_heap",
        "_is_certain",
        "_mask",
        "_seen",
        "_sides",
        "_starts",
    )

    def __init__(
        self, mask: Mask, sides: tuple[Terminals, ...], effort: Effort, budget: Budget
    ) -> None:
        self._mask = mask
        self._sides = sides
        self._effort = effort
        self._budget = budget
        self._edges = sides[0].edges
        self._starts = _rooms(side.starts for side in sides)
        self._ends = _rooms(side.ends for side in sides)
        self._heap: list[tuple[int, int, int, Case]] = []
        self._count = 0
        self._seen: set[tuple[Party, ...]] = set()
        self._is_certain = True

    def search(self, bounds_us: tuple[int, ...]) -> Outcome:
        for shares in _shares(bounds_us, [side.units for side in self._sides]):
            self._put(
                tuple(Party(side, share) for side, share in zip(self._sides, shares, strict=True))
            )
        while self._heap:
            *_, case = heappop(self._heap)
            conflict = self._conflict(case)
            if conflict is None:
                return Outcome(tuple(case.every), self._is_certain)
            if self._budget.is_spent(STEPS_PER_CASE):
                return Outcome(None, is_certain=False)
            for parties in conflict:
                self._put(parties, case)
        return Outcome(None, self._is_certain)

    def _put(self, parties: tuple[Party, ...], before: Case | None = None) -> None:
        """Add a case if each party for itself has routes; those of unchanged parties are kept."""
        key = tuple(sorted(parties, key=hash))
        if key in self._seen:
            return
        self._seen.add(key)
        known = {} if before is None else dict(zip(before.parties, before.routes, strict=True))
        found: list[tuple[Route, ...]] = []
        for party in parties:
            routes = known.get(party) or self._routes(party, before)
            if routes is None:
                return
            found.append(routes)
        case = Case(parties, tuple(found))
        worth = sum(route.latency_us if self._mask.is_timed else route.cost for route in case.every)
        shared = self._shared_count(case)
        keys = (worth, shared) if self._effort is Effort.BEST else (shared, worth)
        self._count += 1
        heappush(self._heap, (*keys, self._count, case))

    def _routes(self, party: Party, before: Case | None) -> tuple[Route, ...] | None:
        heads = self._mask.graph.heads
        for old, routes in (
            () if before is None else zip(before.parties, before.routes, strict=True)
        ):
            if party.is_narrower(old) and party.is_kept_by(routes, heads):
                return routes  # The cheapest routes of a wider choice are the cheapest still.
        if not party.terminals.has_room:
            return None
        mask = self._mask
        if party.arcs or party.routers:
            mask = mask.without(party.arcs, party.routers)
        found = solve(mask, party.terminals, (), party.bounds_us, self._effort, self._budget)
        self._is_certain &= found.is_certain
        return found.routes

    # What paths have in common.

    def _conflict(self, case: Case) -> Iterable[tuple[Party, ...]] | None:
        """Return the cases without one thing that two paths share; None if they share nothing."""
        users = _users(case, self._risks_of)
        risks = self._mask.graph.risks
        used = {arc for route in case.every for arc in route.arcs}
        shared = []
        for risk in sorted(risk for risk, of in users.items() if len(of) > 1):
            if not risks.is_link[risk]:
                shared.append(risk)
            elif risks.arcs_of[risk] <= used:
                return self._without_direction(case, risk)
        if shared:
            fewest = min(shared, key=lambda risk: len(self._open_to(case, risk)))
            return list(self._parted(case, fewest))
        arc = _shared_by_parties(_users(case, _arcs_of))
        if arc is not None:
            return [_denied(case.parties, at, (arc[0],), ()) for at in arc[1]]
        router = _shared_by_parties(_users(case, self._routers_of))
        if router is not None:
            return [_denied(case.parties, at, (), (router[0],)) for at in router[1]]
        return self._with_less_room(case)

    def _without_direction(self, case: Case, risk: int) -> list[tuple[Party, ...]]:
        return [
            tuple(party.without((arc,)) for party in case.parties)
            for arc in sorted(self._mask.graph.risks.arcs_of[risk])
        ]

    def _open_to(self, case: Case, risk: int) -> list[int]:
        """Return the parties that are not denied the whole risk."""
        arcs = self._mask.graph.risks.arcs_of[risk]
        return [at for at, party in enumerate(case.parties) if not arcs <= party.arcs]

    def _parted(self, case: Case, risk: int) -> Iterator[tuple[Party, ...]]:
        """Yield the cases in which one path of a party may run the risk, and no other path."""
        arcs = self._mask.graph.risks.arcs_of[risk]
        for at in self._open_to(case, risk):
            party = case.parties[at]
            others = tuple(
                other.without(arcs) for place, other in enumerate(case.parties) if place != at
            )
            if party.terminals.units == 1:
                yield (party, *others)
                continue
            alone = replace(party.terminals, units=1)
            rest = replace(party.terminals, units=party.terminals.units - 1)
            for bound_us in sorted(set(party.bounds_us)):
                left_us = list(party.bounds_us)
                left_us.remove(bound_us)
                yield (
                    party._replace(terminals=alone, bounds_us=(bound_us,)),
                    party._replace(terminals=rest, bounds_us=tuple(left_us)).without(arcs),
                    *others,
                )

    def _with_less_room(self, case: Case) -> list[tuple[Party, ...]] | None:
        """Return the cases in which one party uses an edge less that all use too often together."""
        heads = self._mask.graph.heads
        for rooms, is_end in ((self._starts, False), (self._ends, True)):
            used = [
                Counter(heads[one.arcs[-1]] if is_end else one.start for one in routes)
                for routes in case.routes
            ]
            for router, room in sorted(rooms.items()):
                if sum(count[router] for count in used) > room:
                    return [
                        _with_room(case.parties, at, router, count[router] - 1, is_end=is_end)
                        for at, count in enumerate(used)
                        if count[router]
                    ]
        return None

    def _shared_count(self, case: Case) -> int:
        return sum(
            len(of) - 1
            for kind in (self._risks_of, _arcs_of, self._routers_of)
            for of in _users(case, kind).values()
        )

    def _risks_of(self, route: Route) -> set[int]:
        of_arc = self._mask.graph.risks.of_arc
        return {risk for arc in route.arcs for risk in of_arc.get(arc, ())}

    def _routers_of(self, route: Route) -> set[int]:
        """Return the routers of a route that no other route may cross."""
        side, heads = self._sides[0], self._mask.graph.heads
        crossed = {heads[arc] for arc in route.arcs} - self._edges
        return crossed if side.node_disjoint else crossed & side.single


def _arcs_of(route: Route) -> set[int]:
    return set(route.arcs)


def _users(case: Case, things_of: Callable[[Route], set[int]]) -> dict[int, list[int]]:
    """Return for each thing that routes use the parties of these routes."""
    found: dict[int, list[int]] = {}
    for at, routes in enumerate(case.routes):
        for route in routes:
            for thing in things_of(route):
                found.setdefault(thing, []).append(at)
    return found


def _shared_by_parties(users: dict[int, list[int]]) -> tuple[int, list[int]] | None:
    """Return a thing that several parties use, and two of these parties."""
    shared = sorted(thing for thing, of in users.items() if len(set(of)) > 1)
    return (shared[0], sorted(set(users[shared[0]]))[:2]) if shared else None


def _denied(
    parties: tuple[Party, ...], at: int, arcs: Iterable[int], routers: Iterable[int]
) -> tuple[Party, ...]:
    return (*parties[:at], parties[at].without(arcs, routers), *parties[at + 1 :])


def _with_room(
    parties: tuple[Party, ...], at: int, router: int, room: int, *, is_end: bool
) -> tuple[Party, ...]:
    terminals = parties[at].terminals
    before = terminals.ends if is_end else terminals.starts
    left = tuple(
        (name, min(room, most) if name == router else most)
        for name, most in before
        if name != router or room
    )
    changed = replace(terminals, ends=left) if is_end else replace(terminals, starts=left)
    return (*parties[:at], parties[at]._replace(terminals=changed), *parties[at + 1 :])


def _rooms(sides: Iterable[tuple[tuple[int, int], ...]]) -> Rooms:
    """Return the rooms of all sides together: where two sides share an edge, they share its
    room."""
    found: Rooms = {}
    for side in sides:
        for router, room in side:
            found[router] = max(room, found.get(router, 0))
    return found


def _shares(bounds_us: tuple[int, ...], units: list[int]) -> list[tuple[tuple[int, ...], ...]]:
    """Return the ways to give each side as many bounds as it has units, all of them once."""
    if len(units) == 1:
        return [(bounds_us,)]
    found = []
    for chosen in sorted(set(combinations(bounds_us, units[0]))):
        others = list(bounds_us)
        for bound_us in chosen:
            others.remove(bound_us)
        found += [(chosen, *rest) for rest in _shares(tuple(others), units[1:])]
    return found
