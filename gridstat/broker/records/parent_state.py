"""State of a leaf broker in a tree: its place, its borders and its requests to other clouds.

Part of `registry.py`; `effects/tree_effects.py` changes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gridstat.broker.records.parent_operations import ContractAsked
    from gridstat.net.command.endpoint_messages import LedgerEntry
    from gridstat.net.command.segment_messages import ContractGranted
    from gridstat.net.command.tree_messages import BorderChannel


@dataclass(slots=True)
class AskedContract:
    """A contract across clouds of one of our end-points; `change` waits for its answer."""

    record: ContractAsked
    change: ContractAsked | None = None
    granted: ContractGranted | None = None
    is_ending: bool = False
    ledger: LedgerEntry | None = None

    @property
    def waiting(self) -> ContractAsked | None:
        """Request that the owner has to answer."""
        return None if self.is_ending else self.unanswered

    @property
    def unanswered(self) -> ContractAsked | None:
        """Request that the owner has not answered, even if the contract is ending."""
        return self.record if self.granted is None else self.change

    @property
    def is_restoring(self) -> bool:
        """True if the previous quality is requested again after a change was answered too late.

        No end-point waits for that request.
        """
        return self.granted is not None and self.change is not None and not self.change.request_id

    @property
    def generation(self) -> int:
        """Highest known generation."""
        known = [self.record.generation]
        if self.granted is not None:
            known.append(self.granted.generation)
        if self.change is not None:
            known.append(self.change.generation)
        return max(known)


@dataclass(slots=True)
class TreeNews:
    """Changes that became durable since the last report to the parent; not durable itself."""

    asked: list[int] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)
    ended_segments: list[tuple[str, int, str]] = field(default_factory=list)
    """Contract, generation and, if its publisher is here, variable name of each ended segment."""
    published: list[str] = field(default_factory=list)
    patterns: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    """Identifiers of removed variables."""
    left: list[str] = field(default_factory=list)
    """End-points that have left."""

    def take(self) -> TreeNews:
        """Return all changes and clear the lists."""
        taken = TreeNews(*(list(each) for each in self._lists()))
        for each in self._lists():
            each.clear()
        return taken

    def __bool__(self) -> bool:
        return any(self._lists())

    def _lists(self) -> tuple[list[Any], ...]:
        return (
            self.asked,
            self.ending,
            self.ended_segments,
            self.published,
            self.patterns,
            self.freed,
            self.left,
        )


@dataclass(slots=True)
class ParentState:
    """State that concerns the parent.

    `asked_by`, `ending_by` and `matched_names` are indices of `asked`; `segments` is one of the
    registry.
    """

    parent_term: int = 0
    depth: int | None = None
    above: tuple[str, ...] = ()
    numbers_used: int = 0
    """Highest identifier that the cloud assigned before it had a parent."""
    borders: dict[int, BorderChannel] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    asked: dict[int, AskedContract] = field(default_factory=dict)
    asked_by: dict[str, set[int]] = field(default_factory=dict)
    """Contracts of each end-point, without the ending ones."""
    ending_by: dict[str, int] = field(default_factory=dict)
    """Count of each end-point's contracts whose end is not confirmed yet."""
    matched_names: dict[int, set[str]] = field(default_factory=dict)
    """Names requested for each pattern, without the ended ones."""
    begun: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """Incomplete answers, by end-point and request."""
    segments: dict[str, dict[int, int]] = field(default_factory=dict)
    """Subscription identifier of each held segment, by contract and generation."""
    news: TreeNews = field(default_factory=TreeNews)

    def term_of(self, parent: str) -> int:
        """Return the highest recorded term of this parent; 0 if the cloud was below another one.

        Every parent counts its own terms.
        """
        is_other = bool(self.above) and self.above[-1] != parent
        return 0 if is_other else self.parent_term

    def numbers_used_in(self, variable_id_last: int) -> int:
        """Return the value for JoinTree: all identifiers, until the cloud has joined a parent
        once."""
        return variable_id_last if self.depth is None else self.numbers_used

    def borders_at(self, router: str) -> list[BorderChannel]:
        """Return the channels between clouds that begin or end at a router."""
        return [
            border
            for _, border in sorted(self.borders.items())
            if router in (border.channel.from_router, border.channel.to_router)
        ]

    def segment(self, contract: str, generation: int) -> int:
        """Return the subscription identifier of a held segment, or 0."""
        return self.segments.get(contract, {}).get(generation, 0)

    def add_segment(self, contract: str, generation: int, number: int) -> None:
        self.segments.setdefault(contract, {})[generation] = number

    def remove_segment(self, contract: str, generation: int) -> None:
        held = self.segments.get(contract, {})
        held.pop(generation, None)
        if not held:
            self.segments.pop(contract, None)


def contract_name(cloud: str, number: int) -> str:
    """Return the name of a contract, the same at all brokers."""
    return f"{cloud}#{number}"


def contract_number(cloud: str, contract: str) -> int:
    """Return the number of a contract of this cloud's subscribers; 0 for one of another cloud."""
    found, _, number = contract.rpartition("#")
    return int(number) if found == cloud and number.isascii() and number.isdigit() else 0
