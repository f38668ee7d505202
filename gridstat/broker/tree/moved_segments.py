"""Segments that a child has moved to other paths since they were decided.

A child sends `Reserved` with `is_moved` when it has moved a segment, and again after every join, so
nothing of this is durable here. The subscriber's cloud, or the parent, then gets the whole path
again. A contract that is not granted yet is sent with its present paths when it is granted.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tree.latency_shares import lie_below_child
from gridstat.broker.tree.owned_contracts import granted_message
from gridstat.broker.tree.tree_operations import Stage

if TYPE_CHECKING:
    from gridstat.broker.tree.replanning import Replanning
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_segments import TreeSegments
    from gridstat.net.command.segment_messages import Reserved


class MovedSegments:
    """Receiver of moved segments; the moved paths themselves are in `Holdings`."""

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

    def receive(self, child: str, message: Reserved) -> None:
        """Record the new paths of a committed segment, if they use routers of the child only."""
        state = self._context.state
        holding = state.holdings.find(message.contract, message.generation)
        if holding is None or child not in holding.children:
            return
        if state.holdings.stage(holding) is not Stage.COMMITTED:
            return
        if not lie_below_child(child, message.paths, state.families):
            self._context.note("not_its_own", child=child, said="Reserved")
            return
        if state.holdings.record_move(holding, child, structs.replace(message, term=0, round=0)):
            self._send(holding)

    def child_joined(self, child: str) -> None:
        """Send moved contracts to their subscriber's cloud, which may have missed them."""
        families = self._context.state.families
        for holding in self._moved():
            if holding.is_owned and families.child_of(_cloud_of(holding)) == child:
                self._send(holding)

    def parent_joined(self) -> None:
        for holding in self._moved():
            if not holding.is_owned:
                self._send(holding)

    def _moved(self) -> list[Holding]:
        holdings = self._context.state.holdings
        found = [holdings.find(*key) for key in sorted(holdings.moved)]
        return [holding for holding in found if holding is not None]

    def _send(self, holding: Holding) -> None:
        """Send the paths once all pending writes have ended, since nobody asks for them again."""
        send = self._send_subscriber if holding.is_owned else self._send_parent
        self._context.when_settled(partial(send, holding))

    def _send_parent(self, holding: Holding) -> None:
        if self._context.state.holdings.find(*holding.key) == holding:
            self._segments.send_reserved(holding, is_moved=True)

    def _send_subscriber(self, holding: Holding) -> None:
        state = self._context.state
        if state.holdings.current(holding.contract) != holding:
            return
        child = state.families.child_of(_cloud_of(holding))
        if child is not None and not self._commits.is_waiting(holding.key):
            self._context.send_child(
                child,
                granted_message(self._context, holding, *self._replanning.impairment_of(holding)),
            )


def _cloud_of(holding: Holding) -> str:
    return holding.contract.partition("#")[0]
