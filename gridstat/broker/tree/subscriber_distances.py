"""Distances of subscribers from the borders of their child, as last reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.border_graph import ASSUMED_LATENCY_US
from gridstat.broker.tree.path_planner import Ends

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.segment_messages import Nearness

SUBSCRIBERS_MAX: Final = 65_536


class SubscriberDistances:
    """Hints for planning only; the latency of a contract comes from its reservations."""

    def __init__(self, context: TreeContext, borders: TreeBorders) -> None:
        self._context = context
        self._borders = borders
        self._near: dict[str, tuple[tuple[str, int], ...]] = {}
        self._known: dict[tuple[tuple[str, int], ...], tuple[tuple[str, int], ...]] = {}

    def learn(self, subscriber: str, ends: tuple[Nearness, ...]) -> None:
        near = tuple([(found.router, found.latency_us) for found in ends])
        if len(self._known) > SUBSCRIBERS_MAX:
            self._known.clear()
        self._near.pop(subscriber, None)
        self._near[subscriber] = self._known.setdefault(near, near)
        if len(self._near) > SUBSCRIBERS_MAX:
            del self._near[next(iter(self._near))]

    def ends(self, subscriber: str, child: str) -> Ends:
        return Ends(child=child, near=self._completed(child, self._near.get(subscriber, ())))

    def starts(self, name: str, starts: tuple[Nearness, ...]) -> Ends:
        child = self._context.state.families.child_at(name) or ""
        near = tuple([(found.router, found.latency_us) for found in starts])
        return Ends(child=child, near=self._completed(child, near))

    def _completed(
        self, child: str, near: tuple[tuple[str, int], ...]
    ) -> tuple[tuple[str, int], ...]:
        """Return distances for exactly the borders of a child.

        A border without a reported distance may be unknown to the reporter: it counts as far.
        """
        wanted = self._borders.wanted(child)
        known = dict(near)
        if len(near) == len(wanted) and known.keys() == set(wanted):
            return near
        far_us = 2 * max(known.values(), default=ASSUMED_LATENCY_US)
        return tuple([(router, known.get(router, far_us)) for router in wanted])
