"""Gaps in the record, collected by reason until they are written to the log."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class GapReason(Enum):
    """Reason why events are missing in a log."""

    DOWN = "recorder down"
    DETACHED = "not attached"
    RING_FULL = "ring full"
    RECEIVER_FULL = "receiver full"
    KERNEL_FULL = "socket full"
    LOG_FULL = "log full"
    DISK = "disk failed"


@dataclass(frozen=True, slots=True)
class Gap:
    """An interval with unrecorded events; `events` is None if their number is unknown."""

    reason: GapReason
    from_ns: int
    to_ns: int
    events: int | None


class GapRecords:
    """Open gaps, one for each reason at most; `take` removes them."""

    def __init__(self) -> None:
        self._open: dict[GapReason, Gap] = {}
        self.events: dict[GapReason, int] = dict.fromkeys(GapReason, 0)
        """Number of events known to be missing since the start, by reason."""

    def add(self, reason: GapReason, from_ns: int, to_ns: int, events: int | None) -> None:
        """Add unrecorded events between two times; None if their number is unknown."""
        self.events[reason] += events or 0
        self._merge(Gap(reason, from_ns, to_ns, events))

    def take(self) -> list[Gap]:
        """Remove and return the gaps that are not written yet."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def put_back(self, gaps: Iterable[Gap]) -> None:
        """Add gaps again that could not be written."""
        for gap in gaps:
            self._merge(gap)

    def _merge(self, gap: Gap) -> None:
        before = self._open.get(gap.reason, gap)
        is_known = before.events is not None and gap.events is not None
        both = 0 if before is gap else before.events
        self._open[gap.reason] = Gap(
            gap.reason,
            min(before.from_ns, gap.from_ns),
            max(before.to_ns, gap.to_ns),
            (both or 0) + (gap.events or 0) if is_known else None,
        )


def gap_row(gap: Gap) -> dict[str, Any]:
    """Return the gap as a row of the log."""
    return {
        "from_ns": gap.from_ns,
        "to_ns": gap.to_ns,
        "reason": gap.reason.value,
        "events": gap.events,
    }
