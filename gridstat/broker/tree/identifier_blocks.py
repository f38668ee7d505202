"""Blocks of identifiers of variables: what was leased from above, and what was given to whom.

The root counts up from 1. A broker in the middle leases larger blocks and hands out parts. Nothing
that was given out is given again, whatever happens to whom it was given to: a child that has lost
its journal is given other blocks, and those that it had stay leased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, assert_never

from gridstat.broker.tree.tree_operations import (
    NumbersAsked,
    NumbersGiven,
    NumbersHeld,
    NumbersKept,
)
from gridstat.model.status import U32_MAX

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_operations import TreeOperation

NUMBER_MAX: Final = U32_MAX
REMEMBERED_MAX: Final = 16
"""Answers kept for each child; it asks again only what it has not heard the answer of."""

Block = tuple[int, int]
"""The first of them, and how many."""


class _Answers(NamedTuple):
    """What a child was given, by its questions, as one journal of it counts them."""

    journal: str
    blocks: dict[int, Block]


class IdentifierBlocks:
    """`last` is the highest that this broker, as a root, has given out."""

    def __init__(self) -> None:
        self.last = 0
        self.kept: NumbersKept | None = None
        self.free: list[Block] = []
        self.asked: dict[int, int] = {}
        self.request_last = 0
        self._given: dict[str, _Answers] = {}
        self._totals: dict[str, int] = {}

    def given(self, child: str, journal: str, request: int) -> Block | None:
        return self._known(child, journal).get(request)

    def is_of(self, child: str, journal: str) -> bool:
        """Whether the child has been given nothing in another journal than this."""
        return child not in self._given or self._given[child].journal == journal

    def _known(self, child: str, journal: str) -> dict[int, Block]:
        found = self._given.get(child)
        return found.blocks if found is not None and found.journal == journal else {}

    @property
    def is_leased(self) -> bool:
        """Whether any of what is free, or was given, is another broker's to count."""
        known = [block for answers in self._given.values() for block in answers.blocks.values()]
        return bool(self.free) or any(first > self.last for first, _ in known)

    @property
    def has_given(self) -> bool:
        return bool(self._given)

    def total(self, child: str) -> int:
        """How many a child has been given in all its life."""
        return self._totals.get(child, 0)

    def is_outdated(self, child: str, journal: str, request: int) -> bool:
        """A question older than all that are remembered; its answer was heard long ago."""
        known = self._known(child, journal)
        return len(known) >= REMEMBERED_MAX and request < min(known)

    def next_of_root(self, count: int) -> Block:
        """The next block of the root; of none, where they are used up."""
        if self.last + count > NUMBER_MAX:
            return 0, 0
        return self.last + 1, count

    def next_of_lease(self, count: int) -> Block | None:
        """From a leased block with room for all, or None."""
        for first, left in self.free:
            if left >= count:
                return first, count
        return None

    def apply(
        self, operation: NumbersKept | NumbersGiven | NumbersAsked | NumbersHeld, done: Applied
    ) -> None:
        before = (self.last, self.kept, list(self.free), dict(self.asked), self.request_last)

        def undo() -> None:
            self.last, self.kept, self.free, self.asked, self.request_last = before

        done.undo.append(undo)
        match operation:
            case NumbersKept(count=count):
                self.kept = operation
                self.last = max(self.last, count)
            case NumbersGiven():
                self._give(operation, done)
            case NumbersAsked(request=request, count=count):
                self.asked[request] = count
                self.request_last = max(self.request_last, request)
            case NumbersHeld(request=request, first=first, count=count):
                self.asked.pop(request, None)
                self.request_last = max(self.request_last, request)
                if count:
                    self.free.append((first, count))
            case _:
                assert_never(operation)

    def operations(self) -> Iterator[TreeOperation]:
        if self.kept is not None:
            yield self.kept
        # A block of request 0 stands for all that was given out and is not remembered singly.
        yield NumbersGiven(child="", request=0, first=1, count=self.last)
        for first, count in self.free:
            yield NumbersHeld(request=self.request_last, first=first, count=count)
        for child, (journal, known) in sorted(self._given.items()):
            forgotten = self.total(child) - sum(count for _, count in known.values())
            if forgotten:
                yield NumbersGiven(child=child, request=0, first=0, count=forgotten)
            for request, (first, count) in sorted(known.items()):
                if first > self.last:  # Of a lease: not to be taken for one of a root.
                    yield NumbersHeld(request=self.request_last, first=first, count=count)
                yield NumbersGiven(
                    child=child, request=request, first=first, count=count, journal=journal
                )
        for request, count in sorted(self.asked.items()):
            yield NumbersAsked(request=request, count=count)

    def _give(self, given: NumbersGiven, done: Applied) -> None:
        before = self.total(given.child)
        self._totals[given.child] = before + given.count
        done.undo.append(lambda: self._totals.__setitem__(given.child, before))
        if given.child and not given.request:
            return  # Of a snapshot: how many they were, and no longer which.
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
        """In place of those of another journal, which nobody asks for any more."""
        before = self._given.get(child)
        self._given[child] = answers

        def undo() -> None:
            del self._given[child]
            if before is not None:
                self._given[child] = before

        done.undo.append(undo)
