"""By which channels the copies of a row's events came; `forwarding_table.c` is the fast copy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gridstat.model.copy_window import COPY_WAYS, CopyWindow, open_slots

if TYPE_CHECKING:
    from gridstat.core.rows import CopyFacts, Row
    from gridstat.model.rate_law import Period


@dataclass(slots=True)
class RowCopies:
    """Each channel that brings copies has a way, as long as there is one for it.

    A channel that brings nothing any more gives its way, and what it counted, to a new one.
    """

    period: Period
    every: int
    window: CopyWindow = field(default_factory=CopyWindow)
    channel_ids: list[int] = field(default_factory=list)

    def note(self, channel_id: int, slot: int, *, is_first: bool) -> None:
        if slot < 0 or slot % self.every:
            return
        way = self._way(channel_id)
        if way is not None:
            self.window.note(way, slot // self.every, is_first=is_first)

    def told(self) -> CopyFacts:
        counted = self.window.told(open_slots(self.period, self.every))
        return {
            "every": self.every,
            "way_count": len(self.channel_ids),
            "channel_ids": [*self.channel_ids, *[0] * (COPY_WAYS - len(self.channel_ids))],
            "passed": counted.passed,
            "came": list(counted.came),
            "first": list(counted.first),
        }

    def _way(self, channel_id: int) -> int | None:
        if channel_id in self.channel_ids:
            return self.channel_ids.index(channel_id)
        if len(self.channel_ids) < COPY_WAYS:
            self.channel_ids.append(channel_id)
            return len(self.channel_ids) - 1
        way = next(self.window.idle_ways(), None)
        if way is not None:
            self.channel_ids[way] = channel_id
            self.window.came[way] = self.window.first[way] = 0
        return way


def copies_of(row: Row, old: RowCopies | None) -> RowCopies | None:
    """Where a row counts, if it does; the counts of old go on while they are of the same slots."""
    if row.period is None or not row.counted_every:
        return None
    is_same = old is not None and old.every == row.counted_every
    return old if is_same else RowCopies(row.period, row.counted_every)
