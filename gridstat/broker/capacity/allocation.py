"""Request for an allocation, and its two results: an allocation with paths, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

# A journal keeps these values, so their annotations are read while the program runs.
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.stamp_law import charged_delay_us
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.errors import Refused
    from gridstat.model.paths import FoundPath

Gates: TypeAlias = tuple[tuple[str, int], ...]
"""Routers at which paths enter or leave the cloud, each with the channel between the clouds."""


class AllocationRequest(Struct, frozen=True):
    """Subscription as admission sees it: from the publisher's edges to the subscriber's edges.

    Subscriptions of one `subscriber` to one variable share the last hop from their edge; without a
    name each is charged as if it had its own subscriber. With `entries` the variable comes from
    another cloud, and with `exits` it goes to one; paths that leave by one channel share that hop.
    With `is_paired` each entry leads to the exit at its place.
    """

    subscription_id: int
    variable: StatusVariable
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    qos: ModalQos
    subscriber: str = ""
    entries: Gates = ()
    exits: Gates = ()
    charged_to: tuple[str, ...] = ()
    """Identities whose shares the contract uses; empty: the subscriber's alone."""
    every_worst: int = 0
    """Worst divisor of a segment's contract; its owner may lower it so far. 0: not at all."""
    is_paired: bool = False

    @property
    def payers(self) -> tuple[str, ...]:
        """Return the identities whose shares the contract uses."""
        return self.charged_to or ((self.subscriber,) if self.subscriber else ())

    @property
    def is_segment(self) -> bool:
        """Return whether this is the part of a contract that leads through several clouds."""
        return bool(self.entries or self.exits)

    @property
    def delay_us(self) -> int:
        """Return the variable's declared delay as latency; the owner charges it across clouds."""
        return 0 if self.is_segment else charged_delay_us(self.variable.delay_ms)

    def taken_by(self, path: FoundPath | AllocatedPath) -> tuple[str, ...]:
        """Return the names under which the last hop of a path is charged."""
        if self.exits:
            return _gates_at(self.exits, path.routers[-1])
        return (self.subscriber or f"subscription {self.subscription_id}",)

    def entered_by(self, path: FoundPath | AllocatedPath) -> tuple[str, ...]:
        """Return the names under which a path's entry from another cloud is charged."""
        return _gates_at(self.entries, path.routers[0])


def _gates_at(gates: Gates, router: str) -> tuple[str, ...]:
    """Return the names of all gates at a router.

    Each of several gates there has a path of its own, and all paths carry the same; so each path
    may be charged at all of them, which counts each once, whichever path has which gate.
    """
    return tuple([f"channel {number}" for name, number in gates if name == router])


class AllocatedPath(Struct, frozen=True, omit_defaults=True):
    """One path from a source to a target; `latency_us` was predicted when it was granted.

    `channel_names` is empty if no channel of the path has a name.
    """

    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    latency_us: int
    channel_names: tuple[str, ...] = ()


class Allocation(Struct, frozen=True):
    """Contract: one ordered list of disjoint paths, of which each mode uses the first few.

    `degraded` explains in text what was rounded or granted below the desired quality, and why.
    """

    request: AllocationRequest
    granted: dict[int, Qos]
    paths: tuple[AllocatedPath, ...]
    is_node_disjoint: bool = True
    shares_edge: bool = False
    degraded: tuple[str, ...] = ()

    @property
    def subscription_id(self) -> int:
        return self.request.subscription_id

    def everys(self, index: int) -> dict[int, int]:
        """Return the divisor of each mode that uses the path of this index, by ascending mode."""
        return everys(self.granted, index)

    def latency_us_max(self, index: int) -> int:
        """Return the lowest latency bound of all modes that use the path of this index."""
        return latency_us_max(self.granted, index)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal and its reason; the fields are those of `RefusedOutcome`."""

    code: int
    reason: str
    hint: str = ""
    bottleneck: str = ""
    shortfall: str = ""

    @staticmethod
    def of(
        kind: type[Refused],
        reason: str,
        *,
        hint: str = "",
        bottleneck: str = "",
        shortfall: str = "",
    ) -> Refusal:
        """Return a refusal with the code of an error class, and by default its remedy as hint."""
        return Refusal(kind.code, reason, hint or kind.remedy, bottleneck, shortfall)


def everys(granted: dict[int, Qos], index: int) -> dict[int, int]:
    if len(granted) == 1:  # By far the most frequent: the same quality in all modes.
        ((mode, qos),) = granted.items()
        return _only(mode, qos.every) if qos.redundancy > index else {}
    return {
        mode: granted[mode].every for mode in sorted(granted) if granted[mode].redundancy > index
    }


@lru_cache(maxsize=4_096)
def _only(mode: int, every: int) -> dict[int, int]:
    """Return one shared dict, since every claim keeps one; callers must not change it."""
    return {mode: every}


def latency_us_max(granted: dict[int, Qos], index: int) -> int:
    return min([qos.latency_us for qos in granted.values() if qos.redundancy > index])


def paths_wanted(granted: dict[int, Qos]) -> int:
    return max([qos.redundancy for qos in granted.values()])


def routers_at(gates: Gates) -> tuple[str, ...]:
    """Return the routers of some gates, each once."""
    return tuple(dict.fromkeys(router for router, _ in gates))


def gates_used(gates: Gates, routers: Iterable[str]) -> tuple[int, ...] | None:
    """Return the channel of each path's gate, by its router; None unless each gate has one path."""
    left = list(gates)
    found = []
    for router in routers:
        gate = next((one for one in left if one[0] == router), None)
        if gate is None:
            return None
        left.remove(gate)
        found.append(gate[1])
    return None if left else tuple(found)


def pairs_used(
    entries: Gates, exits: Gates, ends: Iterable[tuple[str, str]]
) -> tuple[tuple[int, int], ...] | None:
    """Return the channels of each path's entry and exit, by its first and its last router, where
    each entry leads to the exit at its place; None unless each pair has one path."""
    left = list(zip(entries, exits, strict=True))
    found = []
    for end in ends:
        pair = next((one for one in left if (one[0][0], one[1][0]) == end), None)
        if pair is None:
            return None
        left.remove(pair)
        found.append((pair[0][1], pair[1][1]))
    return None if left else tuple(found)


def is_node_disjoint(paths: tuple[AllocatedPath, ...]) -> bool:
    """Return whether no two paths share a router other than an edge."""
    inner = [name for path in paths for name in path.routers[1:-1]]
    return len(set(inner)) == len(inner)


def shares_edge(paths: tuple[AllocatedPath, ...]) -> bool:
    """Return whether two paths start or end at the same edge router."""
    return len(paths) > 1 and (
        len({path.routers[0] for path in paths}) < len(paths)
        or len({path.routers[-1] for path in paths}) < len(paths)
    )
