"""A variable that floods one of two scopes and is routed to subscribers in both.

Routers x… are below one broker and y… below another; channels inside have level 1, those between
the two level 0. What floods is asked of x's broker, so y hears what contracts carry over a border.
"""

from __future__ import annotations

from collections import Counter, deque
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from gridstat.core.rows import ChannelSpec, Flood, Route, Term
from tests.protocol.flooded_grids import PERIOD_MS
from tests.protocol.grids import MS, Grid, MakeCore, Way, event, periodic, told

if TYPE_CHECKING:
    import random

INSIDE: Final = 1
ROUTERS: Final = 7
"""Routers of each scope."""
EXTRA_LINKS: Final = 4
BORDERS: Final = 3
SUBSCRIBERS: Final = 3
"""Subscribers in each scope."""
DIVISORS: Final = (1, 2, 3, 4)
FIRST_SUBSCRIBER: Final = 1_000
"""Channels to subscribers have these numbers."""


class Where(Enum):
    """Routers that have routes, beside those at which a subscriber is attached."""

    EVERYWHERE = auto()
    """All on a contract's path, in the flood or not."""
    BORDERS = auto()
    """Routers outside of the flood, and those from which a path leaves it."""
    EDGES = auto()
    """Routers outside of the flood alone."""


class FloodedScope:
    """The same grid and contracts for the same draws, wherever routes are."""

    def __init__(self, make_core: MakeCore, rng: random.Random, where: Where) -> None:
        self.grid = Grid(make_core, _two_scopes(rng))
        self.copies: Counter[tuple[tuple[str, str], int]] = Counter()
        """Copies of each slot on each channel."""
        self.routes_inside = 0
        self.wanted: dict[str, list[int]] = {}
        self._subscribers: dict[str, int] = {}
        self._slots: list[int] = []
        self._divisors: dict[str, int] = {}
        self._terms: dict[tuple[str, int], set[int]] = {}
        for at, router in enumerate(self._drawn_edges(rng)):
            self._subscribe(router, FIRST_SUBSCRIBER + at, rng.choice(DIVISORS), where)
        self._commit()

    @staticmethod
    def is_inside(name: str) -> bool:
        return name.startswith("x")

    def publish(self, slot: int) -> None:
        created_ns = slot * PERIOD_MS * MS
        self.grid.now_ns = created_ns + 2
        self.grid.publish_at("x0", event(1, created_ns))
        for travelled in self.grid.rounds():
            for way, events in travelled.items():
                self.copies.update((way, _slot(created)) for _, created in events)
        for router, every in self._divisors.items():
            if slot % every == 0:
                self.wanted[router].append(slot)

    def delivered(self) -> dict[str, list[int]]:
        """The slots that each subscriber was sent, in order; once."""
        return {
            router: [_slot(at) for _, at in told(self.grid.cores[router].take_output(channel_id))]
            for router, channel_id in self._subscribers.items()
        }

    def _drawn_edges(self, rng: random.Random) -> list[str]:
        """Some of each scope, as far from the publisher as anything."""
        return [
            name
            for scope in "xy"
            for name in rng.sample([f"{scope}{at}" for at in range(1, ROUTERS)], SUBSCRIBERS)
        ]

    def _subscribe(self, router: str, channel_id: int, every: int, where: Where) -> None:
        self._subscribers[router], self._divisors[router] = channel_id, every
        self.wanted[router] = []
        self.grid.cores[router].open_channel(ChannelSpec(channel_id, floods=False))
        self._terms.setdefault((router, channel_id), set()).add(every)
        for start, end in _path(self.grid, "x0", router):
            is_leaving = self.is_inside(start) and not self.is_inside(end)
            is_flooded = self.is_inside(start) and self.is_inside(end)
            if (is_flooded and where is not Where.EVERYWHERE) or (
                is_leaving and where is Where.EDGES
            ):
                continue
            self.routes_inside += is_flooded
            self._terms.setdefault((start, self.grid.channel_ids[start, end]), set()).add(every)

    def _commit(self) -> None:
        for name, core in self.grid.cores.items():
            routes = tuple(
                Route(channel_id, tuple(Term(every) for every in sorted(divisors)))
                for (router, channel_id), divisors in self._terms.items()
                if router == name
            )
            floods = (Flood(INSIDE),) if self.is_inside(name) else ()
            core.commit([periodic(1, PERIOD_MS, floods=floods, routes=routes)])


def _slot(created_ns: int) -> int:
    return created_ns // (PERIOD_MS * MS)


def _two_scopes(rng: random.Random) -> list[Way]:
    """Two connected graphs with channels both ways, and some between them."""
    links: dict[tuple[str, str], int] = {}
    for scope in "xy":
        names = [f"{scope}{at}" for at in range(ROUTERS)]
        for at in range(1, ROUTERS):
            links[names[rng.randrange(at)], names[at]] = INSIDE
        for _ in range(EXTRA_LINKS):
            one, other = sorted(rng.sample(names, 2))
            links[one, other] = INSIDE
    for _ in range(BORDERS):
        links[f"x{rng.randrange(1, ROUTERS)}", f"y{rng.randrange(ROUTERS)}"] = 0
    return [
        Way(*ends, level)
        for (one, other), level in links.items()
        for ends in ((one, other), (other, one))
    ]


def _path(grid: Grid, start: str, end: str) -> list[tuple[str, str]]:
    """The fewest channels from a router to another."""
    came: dict[str, str] = {start: ""}
    waiting = deque([start])
    while end not in came:
        name = waiting.popleft()
        for way in grid.ways:
            if way.start == name and way.end not in came:
                came[way.end] = name
                waiting.append(way.end)
    path = []
    while came[end]:
        path.append((came[end], end))
        end = came[end]
    return path[::-1]
