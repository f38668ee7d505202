"""Dispatcher of everything about segments: those at the children, and those for the parent.

    coordinator         reserves the segments of a new generation
    segment_commits     commits them
    tree_segments       serves the parent's requests for segments
    moved_segments      forwards the new paths of segments that a child has moved
    reconciliation      compares what a child holds with what is held here
    replanning          reports broken segments to the parent, and marks broken contracts

`segment_releases.py` releases segments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.coordinator import PARKED_TIMER, RESERVE_TIMER
from gridstat.broker.tree.segment_commits import UP_TIMER
from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.net.command.segment_messages import (
    Commit,
    NotReserved,
    Release,
    Reserve,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)

if TYPE_CHECKING:
    from gridstat.broker.tree.coordinator import Coordinator
    from gridstat.broker.tree.moved_segments import MovedSegments
    from gridstat.broker.tree.reconciliation import Reconciliation
    from gridstat.broker.tree.replanning import Replanning
    from gridstat.broker.tree.segment_commits import SegmentCommits
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_segments import TreeSegments


class SegmentDispatcher:
    """Components of segments, in the order in which events reach them."""

    def __init__(
        self,
        coordinator: Coordinator,
        commits: SegmentCommits,
        segments: TreeSegments,
        moved_segments: MovedSegments,
        reconciliation: Reconciliation,
        replanning: Replanning,
    ) -> None:
        self._coordinator = coordinator
        self._commits = commits
        self._segments = segments
        self._moved_segments = moved_segments
        self._reconciliation = reconciliation
        self._replanning = replanning

    def capability(self) -> TreeCapability:
        """Return the registration of segments."""
        return TreeCapability(
            name="segments",
            child_messages={
                Reserved: FromChild(self._reserved),
                NotReserved: FromChild(self._coordinator.not_reserved),
                SegmentUp: FromChild(self._segment_up),
                SegmentBroken: FromChild(self._replanning.segment_broken),
                SegmentRestored: FromChild(self._replanning.segment_restored),
                SegmentsHeld: FromChild(self._reconciliation.receive),
            },
            parent_messages={
                Reserve: self._segments.reserve,
                Commit: self._segments.commit,
                Release: self._segments.release,
            },
            survey=self._facts,
            channels_renumbered=self._coordinator.park_all,
            timers={
                UP_TIMER: self._commits.expire,
                RESERVE_TIMER: self._coordinator.expire,
                PARKED_TIMER: self._coordinator.try_parked,
            },
            child_returned=self._child_returned,
            child_joined=self._child_joined,
            child_left=self._reconciliation.child_left,
            parent_joined=self._parent_joined,
        )

    def _reserved(self, child: str, message: Reserved) -> None:
        if message.is_moved:
            self._moved_segments.receive(child, message)
        else:
            self._coordinator.reserved(child, message)

    def _segment_up(self, child: str, message: SegmentUp) -> None:
        self._commits.confirm((message.contract, message.generation), child, message.degraded)

    def _child_returned(self, child: str) -> None:
        self._replanning.child_returned(child)
        self._reconciliation.child_returned(child)

    def _child_joined(self, child: str) -> None:
        self._commits.child_joined(child)
        self._moved_segments.child_joined(child)
        self._coordinator.child_joined(child)

    def _parent_joined(self) -> None:
        self._segments.parent_joined()
        self._moved_segments.parent_joined()
        self._replanning.parent_joined()

    def _facts(self) -> Facts:
        return {"transactions": len(self._coordinator)}
