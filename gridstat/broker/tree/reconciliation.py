"""Reconciliation with a child that has joined: compare what the child holds with what is held here.

A child that joins sends all its segments in pages of `SegmentsHeld`. Each segment that the child
reports and this broker neither holds nor is reserving is released (presumed abort). A segment that
is committed here and only reserved at the child is committed again. After the last page, a segment
that is committed here and was not reported is lost, and its contract is planned again.

There is no timeout: a session that ends before the last page begins again with the next join.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.tree.tree_operations import Stage

if TYPE_CHECKING:
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.replanning import Replanning
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.segment_releases import Key, SegmentReleases
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.net.command.segment_messages import HeldSegment, SegmentsHeld


class Reconciliation:
    """Keys that each joined child has reported so far, until its last page."""

    def __init__(
        self,
        context: TreeContext,
        coordinator: Coordinator,
        releases: SegmentReleases,
        commits: SegmentCommits,
        replanning: Replanning,
        membership: Membership,
    ) -> None:
        self._context = context
        self._coordinator = coordinator
        self._releases = releases
        self._commits = commits
        self._replanning = replanning
        self._membership = membership
        self._reported: dict[str, set[Key]] = {}

    def child_returned(self, child: str) -> None:
        self._reported[child] = set()

    def child_left(self, child: str) -> None:
        self._reported.pop(child, None)

    def receive(self, child: str, message: SegmentsHeld) -> None:
        reported = self._reported.get(child)
        if reported is None:
            return
        for segment in message.held:
            reported.add((segment.contract, segment.generation))
            if not self._compare(child, segment):
                self._membership.end_session(child, self._releases.too_many_unknown(child))
                return
        if message.is_last:
            # Only a complete list shows which segments the child does not hold.
            del self._reported[child]
            self._releases.child_holds(child, reported)
            self._find_missing(child, reported)

    def _compare(self, child: str, segment: HeldSegment) -> bool:
        """Compare one segment; return False if the child has too many unknown ones."""
        key = (segment.contract, segment.generation)
        holdings = self._context.state.holdings
        holding = holdings.find(*key)
        if holding is None or child not in holding.children:
            transaction = self._coordinator.find(key)
            # A segment of an open transaction is released or kept by the transaction itself.
            is_wanted = transaction is not None and child in transaction.children()
            if not is_wanted and not self._releases.is_open(key, child):
                return self._releases.start_unknown(key, child)
        elif holdings.stage(holding) is Stage.COMMITTED and not segment.is_committed:
            self._context.when_durable(partial(self._commit, holding, child))
        return True

    def _commit(self, holding: Holding, child: str) -> None:
        """Send Commit, unless the holding was released while operations were being written."""
        holdings = self._context.state.holdings
        if holdings.find(*holding.key) == holding and holdings.stage(holding) is Stage.COMMITTED:
            self._commits.send(holding.key, child)

    def _find_missing(self, child: str, reported: set[Key]) -> None:
        holdings = self._context.state.holdings
        for contract in sorted(holdings.of_child(child)):
            for holding in holdings.of(contract):
                is_lost = child in holding.children and holding.key not in reported
                if is_lost and holdings.stage(holding) is Stage.COMMITTED:
                    self._replanning.segment_lost(child, holding)
