"""How many events of one publication its edge routers did not let pass."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gridstat.net.command.endpoint_messages import EventsPoliced


class PolicedTotals:
    """Adds up the reports of all edges; each report is a total since its router began to count."""

    def __init__(self) -> None:
        self._reported: dict[tuple[str, int], tuple[int, int]] = {}
        self.total = 0

    def note(self, notice: EventsPoliced) -> bool:
        """Whether that is more than was known; if the router counts anew, all of it is."""
        key = notice.edge, notice.variable_id
        counted = sum(notice.counts.values())
        count_id, known = self._reported.get(key, (notice.count_id, 0))
        more = counted - known if count_id == notice.count_id else counted
        if more <= 0:
            return False
        self._reported[key] = notice.count_id, counted
        self.total += more
        return True
