"""What could not be recorded: gathered by reason until it can be written down."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


class GapReason(Enum):
    """Why events are missing in a log."""

    DOWN = "recorder down"
    DETACHED = "not attached"
    RING_FULL = "ring full"
    RECEIVER_FULL = "receiver full"
    KERNEL_FULL = "socket full"
    LOG_FULL = "log full"
    DISK = "disk failed"


@dataclass(frozen=True, slots=True)
class Gap:
    """A time without a record of what came; None: it is not known how many events."""

    reason: GapReason
    from_ns: int
    to_ns: int
    events: int | None


class GapRecords:
    """One open gap for each reason; read out, the next one begins anew."""

    def __init__(self) -> None:
        self._open: dict[GapReason, Gap] = {}
        self.events: dict[GapReason, int] = dict.fromkeys(GapReason, 0)
        """All events that are known to be missing, since the start."""

    def add(self, reason: GapReason, from_ns: int, to_ns: int, events: int | None) -> None:
        """Between these times so many events were not recorded; None: it is not known how many."""
        self.events[reason] += events or 0
        self._merge(Gap(reason, from_ns, to_ns, events))

    def take(self) -> list[Gap]:
        """The gaps that are not written down yet; they are gone from here."""
        taken = list(self._open.values())
        self._open.clear()
        return taken

    def put_back(self, gaps: Iterable[Gap]) -> None:
        """They could not be written down."""
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
    """As it stands in the log."""
    return {
        "from_ns": gap.from_ns,
        "to_ns": gap.to_ns,
        "reason": gap.reason.value,
        "events": gap.events,
    }
