"""Routes of a search, by the numbers of the graph: of one path, and of a cheapest flow."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Route:
    """A path by numbers: its first router, and its arcs; none if both ends share that router."""

    start: int
    arcs: tuple[int, ...]
    latency_us: int
    cost: int


class CheapestFlow(NamedTuple):
    """Routes of the cheapest flow, or None if there is no flow, and the steps that it took."""

    routes: tuple[Route, ...] | None
    steps: int
