"""What is asked of an allocation, and its two answers: an allocation with paths, or a refusal."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

# A journal keeps these values, so their annotations are read while the program runs.
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.status import StatusVariable

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.model.errors import Refused
    from gridstat.model.paths import FoundPath

Gates: TypeAlias = tuple[tuple[str, int], ...]
"""Routers at which paths enter or leave the cloud, each with the channel that does it."""


class AllocationRequest(Struct, frozen=True):
    """A subscription as admission sees it: from the publisher's edges to the subscriber's.

    Subscriptions of one `subscriber` to one variable share the last step from their edge; without
    a name each is charged as if it had a subscriber of its own. With `entries` the variable comes
    from another cloud, and with `exits` it goes to one; whoever leaves by one channel shares that.
    """

    subscription_id: int
    variable: StatusVariable
    sources: tuple[str, ...]
    targets: tuple[str, ...]
    qos: ModalQos
    subscriber: str = ""
    entries: Gates = ()
    exits: Gates = ()

    def taken_by(self, path: FoundPath | AllocatedPath) -> str:
        """Who takes the last step of a path."""
        if self.exits:
            return _by_gate(self.exits, path.routers[-1], path.channel_ids[-1:])
        return self.subscriber or f"subscription {self.subscription_id}"

    def entered_by(self, path: FoundPath | AllocatedPath) -> str:
        """By what a path enters the cloud, if it does."""
        if not self.entries:
            return ""
        return _by_gate(self.entries, path.routers[0], path.channel_ids[:1])


def _by_gate(gates: Gates, router: str, beside: tuple[int, ...]) -> str:
    """The one channel of a gate; of several at a router, told apart by the path's next channel."""
    channels = [number for name, number in gates if name == router]
    if len(channels) == 1:
        return f"channel {channels[0]}"
    return f"channel {'+'.join(map(str, channels))} beside {beside}"


class AllocatedPath(Struct, frozen=True):
    """One way from a source to a target; `latency_us` is what was predicted when it was granted."""

    routers: tuple[str, ...]
    channel_ids: tuple[int, ...]
    latency_us: int


class Allocation(Struct, frozen=True):
    """A contract: one ordered list of disjoint paths, of which each mode uses the first few.

    `degraded` says in words what was rounded or granted below the desired quality, and why.
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
        """The divisor of each mode that uses the path of this index, by ascending mode."""
        return everys(self.granted, index)

    def latency_us_max(self, index: int) -> int:
        """What the strictest of the modes that use this path allows it."""
        return latency_us_max(self.granted, index)


@dataclass(frozen=True, slots=True)
class Refusal:
    """No, and why; the fields are those of `RefusedOutcome`."""

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
        """A refusal with the code of an error, and its remedy unless there is a better hint."""
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
    """One for all who take a variable so: it is kept with every claim, and never changed."""
    return {mode: every}


def latency_us_max(granted: dict[int, Qos], index: int) -> int:
    return min([qos.latency_us for qos in granted.values() if qos.redundancy > index])


def paths_wanted(granted: dict[int, Qos]) -> int:
    return max([qos.redundancy for qos in granted.values()])


def routers_at(gates: Gates) -> tuple[str, ...]:
    """The routers of some gates, each once."""
    return tuple(dict.fromkeys(router for router, _ in gates))


def gates_used(gates: Gates, routers: Iterable[str]) -> tuple[int, ...] | None:
    """The channel of each path's gate, by its router; None unless each gate has one path."""
    left = list(gates)
    found = []
    for router in routers:
        gate = next((one for one in left if one[0] == router), None)
        if gate is None:
            return None
        left.remove(gate)
        found.append(gate[1])
    return None if left else tuple(found)


def is_node_disjoint(paths: tuple[AllocatedPath, ...]) -> bool:
    """Whether no two paths share a router but an edge."""
    inner = [name for path in paths for name in path.routers[1:-1]]
    return len(set(inner)) == len(inner)


def shares_edge(paths: tuple[AllocatedPath, ...]) -> bool:
    """Whether two paths start or end at the same edge router."""
    return len(paths) > 1 and (
        len({path.routers[0] for path in paths}) < len(paths)
        or len({path.routers[-1] for path in paths}) < len(paths)
    )
