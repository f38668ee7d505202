"""Changes of a subscription, a publication or an edge, as the application is notified of them.

The rules that distinguish a moved contract from a lowered, broken or restored one are here as well;
they compare two contracts and know nothing of sessions and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

from gridstat.model.call_options import checked_calls
from gridstat.model.path_label import path_steps
from gridstat.model.qos import BASELINE_MODE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.endpoint.contract import Contract

CODE_LINK_FAILED: Final = 1
CODE_PURGED: Final = 3
CODE_EDGE_RESTARTED: Final = 4
"""Codes of an attachment beyond success (S0 §3.11): after a link failure, after the old
registrations were purged, after the edge router was restarted."""


class ChangeKind(StrEnum):
    """Kind of a change."""

    EDGE_LOST = "edge_lost"
    """The session with an edge router is lost; `edges_left` says how many remain."""
    MOVED = "moved"
    """The contract uses other paths, which were set up before the old ones were released."""
    LOWERED = "lowered"
    """The contract has less than was granted: fewer paths work, the quality is lower, or paths
    share a router. Of an edge: it sends no events, because nothing shows that we receive at our
    address; it asks again."""
    BROKEN = "broken"
    """No path works, so the contract is not kept."""
    PURGED = "purged"
    """The cloud has removed it; with `is_over` for good, else it is registered again."""
    RESTORED = "restored"
    """The edge, contract or publication is as it was before it was lost, lowered, broken or
    purged. Of a contract that was granted or lowered below its desired rate also: it has a higher
    rate again, which `contract` says."""
    POLICED = "policed"
    """The edge router did not let events of a publication pass; `policed` has the totals."""


class Subject(StrEnum):
    """Subject of a change; `Change.name` is its name."""

    EDGE = "edge"
    END_POINT = "end_point"
    PUBLICATION = "publication"
    SUBSCRIPTION = "subscription"


@checked_calls()
@dataclass(frozen=True, slots=True)
class Change:
    """One change, as passed to `on_change` and returned by `changes()`.

    `at_ns` is when this end-point learnt of it, by its own clock. `code` is that of an error
    (`gridstat error 1034`), or one of S0's: 1 after a link failure, 3 after a purge, 4 after a
    restart of the edge router; 0 where there is none. `contract` is the new one, of a subscription.
    """

    kind: ChangeKind
    subject: Subject
    name: str
    at_ns: int
    reason: str = ""
    code: int = 0
    contract: Contract | None = None
    edges_left: int | None = None
    is_over: bool = False
    edge: str = ""
    policed: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))


OnChange: TypeAlias = Callable[[Change], object]
"""Type of an application's `on_change`."""


@dataclass(frozen=True, slots=True)
class ContractChange:
    """One kind of change between two contracts, and why."""

    kind: ChangeKind
    reason: str


def compare(granted: Contract, before: Contract, after: Contract) -> list[ContractChange]:
    """Return the changes to report when a contract replaces another, in order.

    `granted` is the contract as the application last requested and got it: only a contract no worse
    than that is restored. The same contract twice is no change.
    """
    found = []
    if _routes(before) != _routes(after):
        found.append(ContractChange(ChangeKind.MOVED, _reason(before, after, _routes_text(after))))
    if is_broken(after):
        if not is_broken(before):
            text = "no path works" if after.paths else "there is no path"
            found.append(ContractChange(ChangeKind.BROKEN, _reason(before, after, text)))
    elif is_broken(before) or _is_lower(before, after):
        is_back = is_broken(before) and not _is_lower(granted, after)
        kind = ChangeKind.RESTORED if is_back else ChangeKind.LOWERED
        found.append(ContractChange(kind, _reason(before, after, _state_text(after))))
    elif _is_lower(granted, before) and not _is_lower(granted, after):
        found.append(ContractChange(ChangeKind.RESTORED, _state_text(after)))
    elif _is_raised(before, after):
        found.append(ContractChange(ChangeKind.RESTORED, _rate_text(after)))
    return found


def is_broken(contract: Contract) -> bool:
    """Return whether none of its paths works, as far as the broker reports."""
    return bool(contract.paths) and len(contract.paths_down or ()) >= len(contract.paths)


def _is_lower(before: Contract, after: Contract) -> bool:
    """Return whether the second contract is worse than the first in any respect."""
    if _working(after) < _working(before) or _is_lower_quality(before, after):
        return True
    if (before.is_node_disjoint and not after.is_node_disjoint) or (
        after.shares_edge and not before.shares_edge
    ):
        return True
    # A broker that does not report the paths that are down still reports reasons.
    return after.paths_down is None and bool(set(after.degraded) - set(before.degraded))


def _is_lower_quality(before: Contract, after: Contract) -> bool:
    for mode, old in before.granted.items():
        new = after.granted.get(mode)
        if new is None or new.every > old.every or new.latency_us > old.latency_us:
            return True
        if new.redundancy < old.redundancy or new.priority > old.priority:
            return True
    return False


def _is_raised(before: Contract, after: Contract) -> bool:
    """Return whether the second contract has a higher rate in any mode."""
    return any(
        (old := before.granted.get(mode)) is not None and new.every < old.every
        for mode, new in after.granted.items()
    )


def _working(contract: Contract) -> int:
    return len(contract.paths) - len(contract.paths_down or ())


def _routes(contract: Contract) -> list[tuple[tuple[str, ...], tuple[int, ...]]]:
    return [(path.routers, path.channel_ids) for path in contract.paths]


def _routes_text(contract: Contract) -> str:
    return "; ".join(
        f"{path.name}: {' > '.join(path_steps(path.routers, path.channel_names))}"
        for path in contract.paths
    )


def _state_text(contract: Contract) -> str:
    return f"{_working(contract)} of {len(contract.paths)} paths work"


def _rate_text(contract: Contract) -> str:
    everys = ", ".join(
        f"every {qos.every}. slot"
        if mode == BASELINE_MODE
        else f"every {qos.every}. in mode {mode}"
        for mode, qos in sorted(contract.granted.items())
    )
    return f"raised to {everys}"


def _reason(before: Contract, after: Contract, otherwise: str) -> str:
    """Return the broker's new reasons, or else the given text."""
    known = set(before.degraded)
    return "; ".join(text for text in after.degraded if text not in known) or otherwise
