"""Identifiers of variables from leased blocks: each of one variable, none again within quarantine.

Law: an event on its way, or in a replay, may still name a variable that is gone. So an identifier
that was given back is given out anew only when it has rested for the quarantine, the longest
rested first; blocks are used in ascending order.
"""

from __future__ import annotations

from bisect import insort
from collections import deque


class IdentifierPool:
    """`last` is the highest that was ever given out of the blocks; above it all are fresh.

    Below it each is in use or at rest, never both, and at rest once.
    """

    def __init__(self, quarantine_ns: int) -> None:
        assert quarantine_ns >= 0
        self._quarantine_ns = quarantine_ns
        self._blocks: list[tuple[int, int]] = []
        self._resting: deque[tuple[int, int]] = deque()
        self._used: set[int] = set()
        self.last = 0

    def lease(self, first: int, count: int) -> None:
        """A block of `count` from `first` on is ours; a block that is known changes nothing."""
        assert first > 0
        assert count > 0
        block = first, first + count - 1
        if block not in self._blocks:
            insort(self._blocks, block)

    def fresh(self) -> int:
        """How many have never been given out."""
        return sum(max(0, end - max(first - 1, self.last)) for first, end in self._blocks)

    def rested(self, now_ns: int, most: int) -> int:
        """How many have been given back long enough ago, but no more than `most` are counted."""
        count = 0
        for since_ns, _ in self._resting:  # The longest rested come first.
            if count >= most or not self._has_rested(since_ns, now_ns):
                break
            count += 1
        return count

    def take(self, now_ns: int) -> int | None:
        """One that nobody has: a rested one, else a fresh one, else none."""
        number = self._next(now_ns)
        if number is not None:
            self._used.add(number)
        return number

    def give_back(self, number: int, now_ns: int) -> None:
        """Its variable is gone; what rests already, or is not of our blocks, is not in use."""
        if number in self._used:
            self._used.discard(number)
            self._resting.append((now_ns, number))

    def resume(self, used: set[int], last: int, now_ns: int) -> None:
        """After a start: all up to `last` that are not used begin to rest now."""
        self.last = last
        self._resting.clear()
        self._used.clear()
        for first, end in self._blocks:
            for number in range(first, min(end, last) + 1):
                if number in used:
                    self._used.add(number)
                else:
                    self._resting.append((now_ns, number))

    def _next(self, now_ns: int) -> int | None:
        if self._resting and self._has_rested(self._resting[0][0], now_ns):
            return self._resting.popleft()[1]
        for first, end in self._blocks:
            if end > self.last:
                self.last = max(first, self.last + 1)
                return self.last
        return None

    def _has_rested(self, since_ns: int, now_ns: int) -> bool:
        return now_ns - since_ns >= self._quarantine_ns
