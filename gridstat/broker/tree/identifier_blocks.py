"""Durable blocks of variable identifiers: leased from the parent, and given to children.

The root counts up from 1. A broker in the middle leases larger blocks and gives out parts. No
identifier is given out twice: a child that has lost its journal gets other blocks, and its former
blocks stay leased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from gridstat.broker.tree.tree_operations import (
    BlockGiven,
    BlockLeased,
    BlockRequested,
    IdentifiersKept,
)
from gridstat.model.status import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_operations import TreeOperation

NUMBER_MAX: Final = U32_MAX
REMEMBERED_MAX: Final = 16
"""Number of replies kept for each child, which repeats only requests without a reply."""

Block = tuple[int, int]
"""First identifier, and count."""


class _Answers(NamedTuple):
    """Blocks given to a child, by request number of one of its journals."""

    journal: str
    blocks: dict[int, Block]


class IdentifierBlocks:
    """`last` is the highest identifier that this broker has given out as a root."""

    def __init__(self) -> None:
        self.last = 0
        self.kept: IdentifiersKept | None = None
        self.free: list[Block] = []
        self.asked: dict[int, int] = {}
        self.request_last = 0
        self._given: dict[str, _Answers] = {}
        self._totals: dict[str, int] = {}

    def given(self, child: str, journal: str, request: int) -> Block | None:
        return self._known(child, journal).get(request)

    def is_of(self, child: str, journal: str) -> bool:
        """Return whether all known blocks of the child belong to this journal."""
        return child not in self._given or self._given[child].journal == journal

    def _known(self, child: str, journal: str) -> dict[int, Block]:
        found = self._given.get(child)
        return found.blocks if found is not None and found.journal == journal else {}

    @property
    def is_leased(self) -> bool:
        """True if any free or given block was leased from another broker."""
        known = [block for answers in self._given.values() for block in answers.blocks.values()]
        return bool(self.free) or any(first > self.last for first, _ in known)

    @property
    def has_given(self) -> bool:
        return bool(self._given)

    def total(self, child: str) -> int:
        """Return the number of identifiers ever given to a child."""
        return self._totals.get(child, 0)

    def is_outdated(self, child: str, journal: str, request: int) -> bool:
        """Return whether a request is older than all remembered replies, and so was answered."""
        known = self._known(child, journal)
        return len(known) >= REMEMBERED_MAX and request < min(known)

    def next_of_root(self, count: int) -> Block:
        """Return the next block of a root; an empty one if all are used up."""
        if self.last + count > NUMBER_MAX:
            return 0, 0
        return self.last + 1, count

    def next_of_lease(self, count: int) -> Block | None:
        """Return a part of a leased block that is large enough, or None."""
        for first, left in self.free:
            if left >= count:
                return first, count
        return None

    def apply(
        self, operation: IdentifiersKept | BlockGiven | BlockRequested | BlockLeased, done: Applied
    ) -> None:
        before = (self.last, self.kept, list(self.free), dict(self.asked), self.request_last)

        def undo() -> None:
            self.last, self.kept, self.free, self.asked, self.request_last = before

        done.undo.append(undo)
        match operation:
            case IdentifiersKept(count=count):
                self.kept = operation
                self.last = max(self.last, count)
            case BlockGiven():
                self._give(operation, done)
            case BlockRequested(request=request, count=count):
                self.asked[request] = count
                self.request_last = max(self.request_last, request)
            case BlockLeased(request=request, first=first, count=count):
                self.asked.pop(request, None)
                self.request_last = max(self.request_last, request)
                if count:
                    self.free.append((first, count))
            case _:
                assert_never(operation)

    def operations(self) -> Iterator[TreeOperation]:
        if self.kept is not None:
            yield self.kept
        # A block of request 0 stands for all that was given out and is not listed singly.
        yield BlockGiven(child="", request=0, first=1, count=self.last)
        for first, count in self.free:
            yield BlockLeased(request=self.request_last, first=first, count=count)
        for child, (journal, known) in sorted(self._given.items()):
            forgotten = self.total(child) - sum(count for _, count in known.values())
            if forgotten:
                yield BlockGiven(child=child, request=0, first=0, count=forgotten)
            for request, (first, count) in sorted(known.items()):
                if first > self.last:  # Replay must not count a leased block as a root's.
                    yield BlockLeased(request=self.request_last, first=first, count=count)
                yield BlockGiven(
                    child=child, request=request, first=first, count=count, journal=journal
                )
        for request, count in sorted(self.asked.items()):
            yield BlockRequested(request=request, count=count)

    def _give(self, given: BlockGiven, done: Applied) -> None:
        before = self.total(given.child)
        self._totals[given.child] = before + given.count
        done.undo.append(lambda: self._totals.__setitem__(given.child, before))
        if given.child and not given.request:
            return  # From a snapshot: only the count is known.
        end = given.first + given.count - 1
        for index, (first, count) in enumerate(self.free):
            if first <= given.first and end < first + count:
                parts = [(first, given.first - first), (end + 1, first + count - 1 - end)]
                self.free[index : index + 1] = [part for part in parts if part[1]]
                break
        else:
            self.last = max(self.last, end)
        if not given.child:
            return
        known = {**self._known(given.child, given.journal)}
        known[given.request] = (given.first, given.count)
        if len(known) > REMEMBERED_MAX:
            del known[min(known)]
        self._remember(given.child, _Answers(given.journal, known), done)

    def _remember(self, child: str, answers: _Answers, done: Applied) -> None:
        """Store the replies for a child, in place of those of an earlier journal."""
        before = self._given.get(child)
        self._given[child] = answers

        def undo() -> None:
            del self._given[child]
            if before is not None:
                self._given[child] = before

        done.undo.append(undo)
