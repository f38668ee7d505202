"""Answers of a path search: the paths, or the reason why there are none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class FoundPath:
    """One path: its routers in order, the channels between them, total latency and cost."""

    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    latency_us: int
    cost: int


@dataclass(frozen=True, slots=True)
class Found:
    """Disjoint paths in the order of latency, each within its bound.

    No two share a channel. `is_node_disjoint`: nor any router but an edge; `shares_edge`: two of
    them start or end at the same edge router. `is_optimal`: none cheaper exists of that kind.
    """

    paths: tuple[FoundPath, ...]
    is_node_disjoint: bool
    shares_edge: bool
    is_optimal: bool


Reason = Literal["disconnected", "disjoint", "latency", "budget", "length"]


@dataclass(frozen=True, slots=True)
class NotFound:
    """No such paths, and the reason.

    "disconnected": there is no path at all. "disjoint": only `paths_max` share no channel.
    "latency": there are enough once all lower bounds are raised to `latency_us_best`, that of path
    `path_index` last; about the least such value. "budget": the search ended without a verdict.
    "length": one of the paths crosses `routers` routers, which are too many for a contract.
    """

    reason: Reason
    paths_max: int = 0
    latency_us_best: int = 0
    path_index: int = 0
    routers: int = 0
