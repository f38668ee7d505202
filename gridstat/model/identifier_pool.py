"""Pool of variable identifiers from leased blocks, with a quarantine before reuse.

Law: an event in transit, or in a replay, may still name a removed variable. A returned identifier
is therefore reused only after the quarantine, the longest rested first; blocks are used in
ascending order.
"""

from __future__ import annotations

from bisect import insort
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(slots=True, order=True)
class _Block:
    """A leased block: identifiers from `next` on are unused; all below are in use or resting."""

    first: int
    end: int
    next: int


class IdentifierPool:
    """Each block has its own counter, since a parent may lease a lower block after a higher one."""

    def __init__(self, quarantine_ns: int) -> None:
        assert quarantine_ns >= 0
        self._quarantine_ns = quarantine_ns
        self._blocks: list[_Block] = []
        self._resting: deque[tuple[int, int]] = deque()
        self._used: set[int] = set()
        self._others: frozenset[int] = frozenset()
        """Identifiers in use since before the start, outside all blocks."""

    def lease(self, first: int, count: int) -> None:
        """Add a leased block; identifiers that are known already are not added again."""
        assert first > 0
        assert count > 0
        for start, end in list(self._unknown(first, first + count - 1)):
            insort(self._blocks, _Block(start, end, start))

    def _unknown(self, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges that are in no block and not in use."""
        known = [(block.first, block.end) for block in self._blocks]
        known += [(number, number) for number in self._others]
        for known_first, known_end in sorted(known):
            if first <= known_end and known_first <= end:
                if first < known_first:
                    yield first, known_first - 1
                first = known_end + 1
        if first <= end:
            yield first, end

    def fresh(self) -> int:
        """Return the number of identifiers that were never given out."""
        return sum(block.end - block.next + 1 for block in self._blocks)

    def rested(self, now_ns: int, most: int) -> int:
        """Return the number of identifiers past their quarantine, counted up to `most`."""
        count = 0
        for since_ns, _ in self._resting:  # The longest rested come first.
            if count >= most or not self._has_rested(since_ns, now_ns):
                break
            count += 1
        return count

    def take(self, now_ns: int) -> int | None:
        """Return an unused identifier: a rested one, else a fresh one, else None."""
        number = self._next(now_ns)
        if number is not None:
            self._used.add(number)
        return number

    def give_back(self, number: int, now_ns: int) -> None:
        """Return the identifier of a removed variable; unknown or resting ones are ignored."""
        if number in self._used:
            self._used.discard(number)
            self._resting.append((now_ns, number))

    def resume(self, used: set[int], last: int, now_ns: int) -> None:
        """Restore the pool at a start: unused identifiers up to `last` begin their quarantine."""
        self._resting.clear()
        ours: set[int] = set()
        for block in self._blocks:
            block.next = max(block.first, min(block.end, last) + 1)
            numbers = range(block.first, block.next)
            ours.update(used.intersection(numbers))
            self._resting.extend((now_ns, number) for number in numbers if number not in used)
        self._used = ours
        self._others = frozenset(used - ours)

    def _next(self, now_ns: int) -> int | None:
        if self._resting and self._has_rested(self._resting[0][0], now_ns):
            return self._resting.popleft()[1]
        for block in self._blocks:
            if block.next <= block.end:
                block.next += 1
                return block.next - 1
        return None

    def _has_rested(self, since_ns: int, now_ns: int) -> bool:
        return now_ns - since_ns >= self._quarantine_ns
