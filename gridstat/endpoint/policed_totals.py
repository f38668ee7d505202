"""How many events of one publication its edge routers did not let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import EventsPoliced


class PolicedTotals:
    """Adds up the reports of all edges; each report is a total since its router began to count."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, int, int], int] = {}
        self.total = 0

    def note(self, notice: EventsPoliced) -> bool:
        """Whether that is more than was known; a report may come twice, or late."""
        key = notice.edge, notice.variable_id, notice.since_ns
        counted = sum(notice.counts.values())
        more = counted - self._reported.get(key, 0)
        known = [one for one in self._reported if one[:2] == key[:2]]
        if more <= 0 or any(one > key for one in known):
            return False
        for old in known:
            del self._reported[old]  # If its router counts anew, what it had counted stays.
        self._reported[key] = counted
        self.total += more
        return True
