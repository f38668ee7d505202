"""Description of a grid of the lab: routers, links, end-points, and the way to the broker.

`grid.py` builds the grid that a plan describes. Names are short (`e0`); the name of the cloud
stands before them in all that leaves the lab.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from gridstat.model.channel_security import HOP, Security

BROKER = "broker"


class Management(Enum):
    """Connection between the routers and their broker."""

    APART = "apart"
    """Separate links for management, so that a cut of an event channel does not affect it."""
    IN_BAND = "in-band"
    """The links of the events, along the shortest way from the first router."""


@dataclass(frozen=True, slots=True)
class RouterPlan:
    """A status router; end-points attach to edges only."""

    name: str
    is_edge: bool = False


@dataclass(frozen=True, slots=True)
class LinkPlan:
    """A wire between two routers that carries a channel each way; forward is from near to far."""

    near: str
    far: str
    latency_ms: float = 1.0
    bandwidth_bytes_per_s: int = 0

    @property
    def name(self) -> str:
        return link_name(self.near, self.far)


@dataclass(frozen=True, slots=True)
class EndPointPlan:
    """A publisher or subscriber with a wire to each of its edges; `name` may have several parts."""

    name: str
    edges: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GridPlan:
    """Plan of one cloud. Every name that a link or end-point uses is the name of a router."""

    routers: tuple[RouterPlan, ...]
    links: tuple[LinkPlan, ...]
    end_points: tuple[EndPointPlan, ...] = ()
    cloud: str = "c1"
    management: Management = Management.APART
    security: Security = HOP
    """Security of all channels, those of end-points included."""

    def __post_init__(self) -> None:
        names = [router.name for router in self.routers]
        everyone = [*names, *(point.name for point in self.end_points), BROKER]
        if len(set(everyone)) != len(everyone):
            raise ValueError("two parts of the grid share a name")
        edges = {router.name for router in self.routers if router.is_edge}
        for link in self.links:
            if {link.near, link.far} - set(names) or link.near == link.far:
                raise ValueError(f"link {link.name} does not join two routers")
        for point in self.end_points:
            if not point.edges or set(point.edges) - edges:
                raise ValueError(f"end-point {point.name} must attach to edge routers")

    @property
    def wires(self) -> list[tuple[str, str]]:
        """Return all pairs that a wire joins: the links, then each end-point with its edges."""
        links = [(link.near, link.far) for link in self.links]
        return links + [(point.name, edge) for point in self.end_points for edge in point.edges]

    def full_name(self, name: str) -> str:
        return f"{self.cloud}/{name}"


def link_name(near: str, far: str) -> str:
    """Return the name of a wire in orders and reports."""
    return f"{near}-{far}"


def two_ways(*, publishers: int = 1, subscribers: int = 1) -> GridPlan:
    """Return eight routers in two ways without a common router, with rungs for recovery.

    publishers ── e0 ── i0 ── i1 ── e2 ── subscribers
         └─────── e1 ── i2 ── i3 ── e3 ───────┘          rungs i0 ── i2, i1 ── i3
    """
    edges = [RouterPlan(f"e{number}", is_edge=True) for number in range(4)]
    inner = [RouterPlan(f"i{number}") for number in range(4)]
    upper = [("e0", "i0"), ("i0", "i1"), ("i1", "e2")]
    lower = [("e1", "i2"), ("i2", "i3"), ("i3", "e3")]
    rungs = [("i0", "i2"), ("i1", "i3")]
    left = [EndPointPlan(f"north/pmu-{number}", ("e0", "e1")) for number in range(publishers)]
    right = [EndPointPlan(f"centre/view-{number}", ("e2", "e3")) for number in range(subscribers)]
    return GridPlan(
        routers=(*edges, *inner),
        links=tuple(LinkPlan(near, far) for near, far in upper + lower + rungs),
        end_points=(*left, *right),
    )
