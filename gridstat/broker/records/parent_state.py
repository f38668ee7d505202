"""What a leaf broker knows of the tree above it, and what it has asked there.

Plain state like `registry.py`, of which it is a part; `effects/tree_effects.py` changes it.
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
    """A contract across clouds, of one of our end-points; `change` waits for its answer."""

    record: ContractAsked
    change: ContractAsked | None = None
    granted: ContractGranted | None = None
    is_ending: bool = False
    ledger: LedgerEntry | None = None

    @property
    def waiting(self) -> ContractAsked | None:
        """What the owner has to answer."""
        return None if self.is_ending else self.unanswered

    @property
    def unanswered(self) -> ContractAsked | None:
        """What it had to answer, also of one that has ended before that."""
        return self.record if self.granted is None else self.change

    @property
    def is_restoring(self) -> bool:
        """Whether what was before is asked for, since a change was answered too late; by nobody's
        request."""
        return self.granted is not None and self.change is not None and not self.change.request_id

    @property
    def generation(self) -> int:
        """The highest that is known of it."""
        known = [self.record.generation]
        if self.granted is not None:
            known.append(self.granted.generation)
        if self.change is not None:
            known.append(self.change.generation)
        return max(known)


@dataclass(slots=True)
class TreeNews:
    """What has become durable since the parent was last told; not durable itself."""

    asked: list[int] = field(default_factory=list)
    ending: list[int] = field(default_factory=list)
    ended_segments: list[tuple[str, int, str]] = field(default_factory=list)
    """Contract and generation of committed ones, and the variable's name if it began here."""
    published: list[str] = field(default_factory=list)
    patterns: list[int] = field(default_factory=list)
    freed: list[int] = field(default_factory=list)
    """Identifiers of variables that are gone."""
    left: list[str] = field(default_factory=list)
    """End-points that are gone."""

    def take(self) -> TreeNews:
        """All of it; what comes later is news again."""
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
    """`asked_by`, `ending_by` and `caught` are indices of `asked`, `segments` of the registry."""

    parent_term: int = 0
    depth: int | None = None
    above: tuple[str, ...] = ()
    numbers_used: int = 0
    """Identifiers of variables that the cloud gave out before it had a parent."""
    borders: dict[int, BorderChannel] = field(default_factory=dict)
    blocks: list[tuple[int, int]] = field(default_factory=list)
    asked: dict[int, AskedContract] = field(default_factory=dict)
    asked_by: dict[str, set[int]] = field(default_factory=dict)
    """By end-point, those that it has: without the ending ones."""
    ending_by: dict[str, int] = field(default_factory=dict)
    """By end-point, how many of those that it had are not confirmed as ended yet."""
    caught: dict[int, set[str]] = field(default_factory=dict)
    """By pattern, the names that were asked for because of it and have not ended."""
    begun: dict[tuple[str, int], list[bytes]] = field(default_factory=dict)
    """Answers with outcomes that are not known yet, by end-point and request."""
    segments: dict[str, dict[int, int]] = field(default_factory=dict)
    """By contract and generation, the number under which this cloud holds it."""
    news: TreeNews = field(default_factory=TreeNews)

    def numbers_used_in(self, variable_id_last: int) -> int:
        """What a parent is told of them; as long as it has never been heard, they are all."""
        return variable_id_last if self.depth is None else self.numbers_used

    def borders_at(self, router: str) -> list[BorderChannel]:
        """The channels between clouds that begin or end at a router."""
        return [
            border
            for _, border in sorted(self.borders.items())
            if router in (border.channel.from_router, border.channel.to_router)
        ]

    def segment(self, contract: str, generation: int) -> int:
        """The number under which it is held, or 0."""
        return self.segments.get(contract, {}).get(generation, 0)

    def add_segment(self, contract: str, generation: int, number: int) -> None:
        self.segments.setdefault(contract, {})[generation] = number

    def remove_segment(self, contract: str, generation: int) -> None:
        held = self.segments.get(contract, {})
        held.pop(generation, None)
        if not held:
            self.segments.pop(contract, None)


def contract_name(cloud: str, number: int) -> str:
    """What all brokers call a contract."""
    return f"{cloud}#{number}"


def contract_number(cloud: str, contract: str) -> int:
    """The number of a contract of this cloud's subscribers, or 0 for one of another cloud."""
    found, _, number = contract.rpartition("#")
    return int(number) if found == cloud and number.isascii() and number.isdigit() else 0
