"""After a child has joined: what it holds against what is held here, until both say the same."""

from __future__ import annotations

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
    """Presumed abort: what nobody here has decided, or is deciding, goes."""

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
        self._told: dict[str, set[Key]] = {}

    def child_joined(self, child: str) -> None:
        self._told[child] = set()

    def child_left(self, child: str) -> None:
        self._told.pop(child, None)

    def held(self, child: str, message: SegmentsHeld) -> None:
        told = self._told.get(child)
        if told is None:
            return
        for segment in message.held:
            told.add((segment.contract, segment.generation))
            if not self._compare(child, segment):
                self._membership.end_session(child, self._releases.too_many_unknown(child))
                return
        if message.is_last:
            del self._told[child]
            self._releases.child_holds(child, told)
            self._find_missing(child, told)

    def _compare(self, child: str, segment: HeldSegment) -> bool:
        """Whether more of it can be taken in."""
        key = (segment.contract, segment.generation)
        holdings = self._context.state.holdings
        holding = holdings.find(*key)
        if holding is None or child not in holding.children:
            transaction = self._coordinator.find(key)
            is_wanted = transaction is not None and child in transaction.children()
            if not is_wanted and not self._releases.is_open(key, child):
                return self._releases.start_unknown(key, child)
        elif holdings.stage(holding) is Stage.COMMITTED and not segment.is_committed:
            self._context.when_durable(lambda: self._commit(holding, child))
        return True

    def _commit(self, holding: Holding, child: str) -> None:
        """If it still counts: that was being written when the child told of it."""
        holdings = self._context.state.holdings
        if holdings.find(*holding.key) == holding and holdings.stage(holding) is Stage.COMMITTED:
            self._commits.say(holding.key, child)

    def _find_missing(self, child: str, told: set[Key]) -> None:
        holdings = self._context.state.holdings
        for contract in sorted(holdings.of_child(child)):
            for holding in holdings.of(contract):
                is_lost = child in holding.children and holding.key not in told
                if is_lost and holdings.stage(holding) is Stage.COMMITTED:
                    self._replanning.lost(child, holding)
