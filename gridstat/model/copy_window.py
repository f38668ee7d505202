"""By which of several ways the copies of a variable's events came, due slot by due slot.

Law: a due slot of which some way brought a copy has passed, and a way that brought none of it has
missed it; a slot that no way brought is not seen here, and lost on all of them. The last few slots
are left open, for ways differ in length. `core/copies.c` is the fast copy of this file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.rate_law import Period

COPY_PATHS: Final = 4
"""Of so many ways copies are told apart; others bring copies that nobody counts."""
COPY_SLOTS: Final = 256
"""Due slots that are remembered, by pages; a copy of one on an older page is no copy."""
PAGE_SLOTS: Final = 64


class CopyCounts(NamedTuple):
    """Due slots that some way brought, and of these by way: brought at all, and before the others.

    A way has missed `passed - came`.
    """

    passed: int = 0
    came: tuple[int, ...] = (0,) * COPY_PATHS
    first: tuple[int, ...] = (0,) * COPY_PATHS


@dataclass(slots=True)
class CopyWindow:
    """`seen` are the due slots of the window by way; what has left it is summed up."""

    newest: int = 0
    passed: int = 0
    came: list[int] = field(default_factory=lambda: [0] * COPY_PATHS)
    first: list[int] = field(default_factory=lambda: [0] * COPY_PATHS)
    seen: list[set[int]] = field(default_factory=lambda: [set() for _ in range(COPY_PATHS)])

    def note(self, way: int, due: int, *, is_first: bool) -> None:
        """A copy of the due slot with this number among the due ones came by a way."""
        if due > self.newest:
            self._judge((due // PAGE_SLOTS + 1) * PAGE_SLOTS - COPY_SLOTS)
            self.newest = due
        elif is_first and not self._remembers(due):  # The window follows a clock set back.
            self._judge(self.newest + 1)
            self.newest = due
        if self._remembers(due):
            self.seen[way].add(due)
            self.first[way] += is_first

    def told(self, open_slots: int) -> CopyCounts:
        """The counts, without the newest slots, whose copies may be under way."""
        last = self.newest - open_slots
        closed = [{due for due in seen if due <= last} for seen in self.seen]
        return CopyCounts(
            self.passed + len(set().union(*closed)),
            tuple(before + len(some) for before, some in zip(self.came, closed, strict=True)),
            tuple(self.first),
        )

    def idle_ways(self) -> Iterator[int]:
        """The ways that brought nothing for as long as the window remembers."""
        return (way for way, seen in enumerate(self.seen) if not seen)

    def _remembers(self, due: int) -> bool:
        return self.newest // PAGE_SLOTS - due // PAGE_SLOTS < COPY_SLOTS // PAGE_SLOTS

    def _judge(self, first: int) -> None:
        """All slots before this one leave the window."""
        left = [{due for due in seen if due < first} for seen in self.seen]
        self.passed += len(set().union(*left))
        for way, some in enumerate(left):
            self.came[way] += len(some)
            self.seen[way] -= some


def open_slots(period: Period, every: int) -> int:
    """How many of the newest due slots may have copies under way: a second's worth, and two."""
    return min(period.per_seconds // period.seconds // every + 2, COPY_SLOTS)
