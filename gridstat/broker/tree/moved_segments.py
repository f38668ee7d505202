"""Parts that a child leads another way than it said when they were decided, and who hears of it.

A child says it when it has moved what it holds, and again after every join; so nothing of this is
durable here. The subscriber's cloud, or the parent, then hears the whole anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.latency_shares import are_own
from gridstat.broker.tree.owned_contracts import granted_word
from gridstat.broker.tree.tree_operations import Stage

if TYPE_CHECKING:
    from gridstat.broker.tree.replanning import Replanning
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_segments import TreeSegments
    from gridstat.net.command.segment_messages import Reserved


class MovedSegments:
    """What is not granted yet is told when it is, as it is then."""

    def __init__(
        self,
        context: TreeContext,
        commits: SegmentCommits,
        segments: TreeSegments,
        replanning: Replanning,
    ) -> None:
        self._context = context
        self._commits = commits
        self._segments = segments
        self._replanning = replanning

    def hear(self, child: str, word: Reserved) -> None:
        """Of something that is decided; a child leads paths only over routers of its own."""
        state = self._context.state
        holding = state.holdings.find(word.contract, word.generation)
        if holding is None or child not in holding.children:
            return
        if state.holdings.stage(holding) is not Stage.COMMITTED:
            return
        if not are_own(child, word.paths, state.families):
            self._context.note("not_its_own", child=child, said="Reserved")
            return
        if state.holdings.lead(holding, child, structs.replace(word, term=0, round=0)):
            self._tell(holding)

    def child_joined(self, child: str) -> None:
        """Its subscribers may not have heard of what moved meanwhile."""
        families = self._context.state.families
        for holding in self._moved():
            if holding.is_owned and families.child_of(_cloud_of(holding)) == child:
                self._tell(holding)

    def parent_joined(self) -> None:
        for holding in self._moved():
            if not holding.is_owned:
                self._tell(holding)

    def _moved(self) -> list[Holding]:
        holdings = self._context.state.holdings
        found = [holdings.find(*key) for key in sorted(holdings.moved)]
        return [holding for holding in found if holding is not None]

    def _tell(self, holding: Holding) -> None:
        if holding.is_owned:
            self._context.when_durable(lambda: self._tell_subscriber(holding))
        else:
            self._context.when_durable(lambda: self._tell_parent(holding))

    def _tell_parent(self, holding: Holding) -> None:
        if self._context.state.holdings.find(*holding.key) == holding:
            self._segments.say_reserved(holding, is_moved=True)

    def _tell_subscriber(self, holding: Holding) -> None:
        state = self._context.state
        if state.holdings.current(holding.contract) != holding:
            return
        child = state.families.child_of(_cloud_of(holding))
        if child is not None and not self._commits.is_waiting(holding.key):
            self._context.send_child(
                child,
                granted_word(self._context, holding, *self._replanning.impairment_of(holding)),
            )


def _cloud_of(holding: Holding) -> str:
    return holding.contract.partition("#")[0]
