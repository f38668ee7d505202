"""Rows that routers refuse, and the time for which new paths avoid those routers.

When a contract moves away from a full router, its row is removed there, so the router no longer
refuses it although it still could not hold it. Paths of the variable avoid the router for a while,
longer each time; otherwise a contract would move between two full routers for ever.

States of a row at a router: refused; avoided, after the refused row was removed, until its time is
up; remembered with its count, so that the next pause is longer; forgotten. A row that the router
holds, and every row of a router with a new process, is forgotten at once. Nothing is durable.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import BrokerContext

REFUSAL_TIMER: Final = "refusal"
DOUBLINGS_MAX: Final = 6
AVOIDED_RETRIES: Final = 8
"""Length of the first avoidance of a removed row, in retry intervals of the broker."""


class RowRefusals:
    """Refused rows; `_avoided` is a heap of the avoided ones, and the timer is set for its first.

    Each entry has the row's count. If the count has changed since, a later entry replaces it.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._rows = context.reservations.allocator.avoided_routers
        self._avoided: list[tuple[int, str, int, int]] = []

    def update(self, router: str, variable_ids: Iterable[int]) -> set[int]:
        """Update the state of these rows at a router; return those that it newly refuses."""
        table = self._context.tables[router]
        newly_refused = set()
        for variable_id in sorted(variable_ids):
            if variable_id in table.refused:
                if self._rows.mark(router, variable_id):
                    self._rows.counts.setdefault((router, variable_id), 0)
                    newly_refused.add(variable_id)
            elif variable_id in table.wanted.variables:
                self._forget(router, variable_id)
            else:
                self._avoid_for_now(router, variable_id)
        return newly_refused

    def forget_router(self, router: str) -> None:
        """Forget all rows of a router that has a new process or was removed."""
        self._rows.clear_router(router)

    def expire(self) -> set[int]:
        """Return the variables for which some router is no longer avoided.

        The count of refusals is kept for as long as the longest avoidance lasts.
        """
        found = set()
        while self._avoided and self._avoided[0][0] <= self._context.now_ns:
            _, router, variable_id, count = heappop(self._avoided)
            if self._rows.counts.get((router, variable_id)) != count:
                continue
            is_here = router in self._context.registry.routers
            if is_here and variable_id in self._context.tables[router].refused:
                continue  # The row was ordered again and refused again.
            if self._rows.clear(router, variable_id):
                found.add(variable_id)
                self._check_later(router, variable_id, DOUBLINGS_MAX)
            else:
                del self._rows.counts[router, variable_id]
        self._set_timer()
        return found

    def _forget(self, router: str, variable_id: int) -> None:
        self._rows.clear(router, variable_id)
        self._rows.counts.pop((router, variable_id), None)

    def _avoid_for_now(self, router: str, variable_id: int) -> None:
        count = self._rows.counts.get((router, variable_id))
        if count is None or router not in self._rows.of(variable_id):
            return
        self._rows.counts[router, variable_id] = count + 1
        self._check_later(router, variable_id, min(count, DOUBLINGS_MAX))
        self._set_timer()

    def _check_later(self, router: str, variable_id: int, doublings: int) -> None:
        pause_ns = AVOIDED_RETRIES * self._context.settings.retry_after_ns
        at_ns = self._context.now_ns + (pause_ns << doublings)
        count = self._rows.counts[router, variable_id]
        heappush(self._avoided, (at_ns, router, variable_id, count))

    def _set_timer(self) -> None:
        if self._avoided:
            self._context.set_timer(REFUSAL_TIMER, self._avoided[0][0] - self._context.now_ns)
