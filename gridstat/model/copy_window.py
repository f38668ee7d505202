"""Counts of redundant copies of a variable's events by path, for each due slot.

Law: a due slot has passed once any path has delivered a copy of it, and every other path without a
copy has missed it. A slot that no path delivered is not counted here: it is lost on all paths. The
newest slots stay open, since paths differ in latency. `core/copies.c` is the fast version of this
file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.window_law import WINDOW_LENGTHS, window_slots

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.model.rate_law import Period

COPY_PATHS: Final = 4
"""Number of paths whose copies are counted; copies on further paths are ignored."""
COPY_SLOTS: Final = 256
"""Number of due slots kept, in pages; copies of slots on older pages are ignored."""
PAGE_SLOTS: Final = 64


class CopyCounts(NamedTuple):
    """Number of delivered due slots, and by path those delivered, and those delivered first.

    A path has missed `passed - came` slots.
    """

    passed: int = 0
    came: tuple[int, ...] = (0,) * COPY_PATHS
    first: tuple[int, ...] = (0,) * COPY_PATHS


def counted_every(period: Period, every: int) -> int:
    """Return the divisor of the slots that are counted of every n-th.

    The window for duplicates of a fast variable is longer than this one. Of such a variable a
    sample is counted, so that a slow path whose copies are still of use does not look lossy.
    """
    slots = window_slots(period)
    while slots != min(WINDOW_LENGTHS) and (COPY_SLOTS - PAGE_SLOTS) * every < slots:
        every *= 2
    return every


@dataclass(slots=True)
class CopyWindow:
    """`seen` are the due slots of the window by path; older slots are only counted."""

    newest: int = 0
    passed: int = 0
    came: list[int] = field(default_factory=lambda: [0] * COPY_PATHS)
    first: list[int] = field(default_factory=lambda: [0] * COPY_PATHS)
    seen: list[set[int]] = field(default_factory=lambda: [set() for _ in range(COPY_PATHS)])

    def note(self, path: int, due: int, *, is_first: bool) -> None:
        """Count a copy on a path; `due` is the number of the slot among the due slots."""
        if due > self.newest:
            self._close_before((due // PAGE_SLOTS + 1) * PAGE_SLOTS - COPY_SLOTS)
            self.newest = due
        elif is_first and not self._holds(due):  # The window follows a clock that was set back.
            self._close_before(self.newest + 1)
            self.newest = due
        if self._holds(due):
            self.seen[path].add(due)
            self.first[path] += is_first

    def counts(self, open_slots: int) -> CopyCounts:
        """Return the counts without the newest slots, whose copies may still arrive."""
        last = self.newest - open_slots
        closed = [{due for due in seen if due <= last} for seen in self.seen]
        return CopyCounts(
            self.passed + len(set().union(*closed)),
            tuple(before + len(some) for before, some in zip(self.came, closed, strict=True)),
            tuple(self.first),
        )

    def idle_paths(self) -> Iterator[int]:
        """Yield the paths without a copy in the whole window."""
        return (path for path, seen in enumerate(self.seen) if not seen)

    def _holds(self, due: int) -> bool:
        return self.newest // PAGE_SLOTS - due // PAGE_SLOTS < COPY_SLOTS // PAGE_SLOTS

    def _close_before(self, first: int) -> None:
        """Move all slots before this one from the window into the counts."""
        left = [{due for due in seen if due < first} for seen in self.seen]
        self.passed += len(set().union(*left))
        for path, some in enumerate(left):
            self.came[path] += len(some)
            self.seen[path] -= some


def open_slots(period: Period, every: int) -> int:
    """Return the number of newest due slots that stay open: those of a second, and two."""
    return min(period.per_seconds // period.seconds // every + 2, COPY_SLOTS)
