"""Distances of subscribers from the borders of their child, as last reported."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.border_graph import ASSUMED_LATENCY_US
from gridstat.broker.tree.path_planner import Ends
from gridstat.net.command.segment_messages import Nearness
from gridstat.net.command.tree_messages import WAYS_MAX

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_borders import TreeBorders
    from gridstat.broker.tree.tree_context import TreeContext

SUBSCRIBERS_MAX: Final = 65_536


class SubscriberDistances:
    """Hints for planning only; the latency of a contract comes from its reservations."""

    def __init__(self, context: TreeContext, borders: TreeBorders) -> None:
        self._context = context
        self._borders = borders
        self._near: dict[str, tuple[Nearness, ...]] = {}
        self._known: dict[tuple[Nearness, ...], tuple[Nearness, ...]] = {}

    def learn(self, subscriber: str, ends: tuple[Nearness, ...]) -> None:
        near = ends
        if len(self._known) > SUBSCRIBERS_MAX:
            self._known.clear()
        self._near.pop(subscriber, None)
        self._near[subscriber] = self._known.setdefault(near, near)
        if len(self._near) > SUBSCRIBERS_MAX:
            del self._near[next(iter(self._near))]

    def forget(self, subscriber: str) -> None:
        """Forget distances by which no plan was found: they are as old as the last request."""
        self._near.pop(subscriber, None)

    def ends(self, subscriber: str, child: str) -> Ends:
        return self._completed(child, self._near.get(subscriber, ()))

    def starts(self, name: str, starts: tuple[Nearness, ...]) -> Ends:
        child = self._context.state.families.child_at(name) or ""
        return self._completed(child, starts)

    def _completed(self, child: str, near: tuple[Nearness, ...]) -> Ends:
        """Return distances for exactly the borders of a child.

        A border without a reported distance may have been unknown to the reporter, or out of its
        reach then: it counts as near as the nearest, and as reached by as many paths as there may
        be, so that no guess excludes what may exist. The child's answer to Reserve decides.
        """
        wanted = self._borders.wanted(child)
        known = {found.router: found for found in near}
        if len(near) == len(wanted) and known.keys() == set(wanted):
            return Ends(child=child, near=near)
        near_us = min((found.latency_us for found in near), default=ASSUMED_LATENCY_US)
        completed = [
            known.get(router) or Nearness(router=router, latency_us=near_us, link_disjoint=WAYS_MAX)
            for router in wanted
        ]
        return Ends(child=child, near=tuple(completed), is_guessed=True)
