"""Rows that routers refuse, and for how long nobody is led there again.

A contract that moves away takes its row along, so a router stops refusing what it could still not
hold. It is avoided for a while nevertheless, longer each time, or two full routers would send a
contract to and fro for ever.
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
"""A row that has gone is avoided for so many times the pause between two tries of anything."""


class RowRefusals:
    """`_gone` is a heap of rows that were refused and have gone; the timer is set for its first.

    Each stands there with its count. When that has changed, another entry has taken its place.
    """

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self._rows = context.reservations.allocator.refused_rows
        self._gone: list[tuple[int, str, int, int]] = []

    def take(self, router: str, variable_ids: Iterable[int]) -> set[int]:
        """What a router says of these rows now: refused, held, or not there; the first is news."""
        table = self._context.tables[router]
        news = set()
        for variable_id in sorted(variable_ids):
            if variable_id in table.refused:
                if self._rows.mark(router, variable_id):
                    self._rows.counts.setdefault((router, variable_id), 0)
                    news.add(variable_id)
            elif variable_id in table.wanted.variables:
                self._forget(router, variable_id)
            else:
                self._avoid_for_now(router, variable_id)
        return news

    def forget_router(self, router: str) -> None:
        """Another process, or one that is gone: nothing is known of what it can hold."""
        self._rows.clear_router(router)

    def expire(self) -> set[int]:
        """The variables that may be led over some router again.

        How often it was refused there is remembered for as long as it may be avoided at all.
        """
        found = set()
        while self._gone and self._gone[0][0] <= self._context.now_ns:
            _, router, variable_id, count = heappop(self._gone)
            if self._rows.counts.get((router, variable_id)) != count:
                continue
            is_here = router in self._context.registry.routers
            if is_here and variable_id in self._context.tables[router].refused:
                continue  # It is back, and refused again.
            if self._rows.clear(router, variable_id):
                found.add(variable_id)
                self._look_later(router, variable_id, DOUBLINGS_MAX)
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
        self._look_later(router, variable_id, min(count, DOUBLINGS_MAX))
        self._set_timer()

    def _look_later(self, router: str, variable_id: int, doublings: int) -> None:
        pause_ns = AVOIDED_RETRIES * self._context.settings.retry_after_ns
        at_ns = self._context.now_ns + (pause_ns << doublings)
        count = self._rows.counts[router, variable_id]
        heappush(self._gone, (at_ns, router, variable_id, count))

    def _set_timer(self) -> None:
        if self._gone:
            self._context.set_timer(REFUSAL_TIMER, self._gone[0][0] - self._context.now_ns)
