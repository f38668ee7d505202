"""All parts of a broker above clouds, and who tells whom of what."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.border_graph import BorderGraph
from gridstat.broker.tree.coordinator import Coordinator
from gridstat.broker.tree.identifier_leases import IdentifierLeases
from gridstat.broker.tree.membership import Membership
from gridstat.broker.tree.moved_segments import MovedSegments
from gridstat.broker.tree.owned_contracts import OwnedContracts
from gridstat.broker.tree.path_planner import PathPlanner
from gridstat.broker.tree.publication_lookups import PublicationLookups
from gridstat.broker.tree.reconciliation import Reconciliation
from gridstat.broker.tree.replanning import Replanning
from gridstat.broker.tree.segment_commits import SegmentCommits
from gridstat.broker.tree.segment_releases import HoldingRelease, SegmentReleases
from gridstat.broker.tree.subscriber_distances import SubscriberDistances
from gridstat.broker.tree.tree_borders import TreeBorders
from gridstat.broker.tree.tree_flooding import TreeFlooding
from gridstat.broker.tree.tree_segments import TreeSegments
from gridstat.broker.tree.tree_watches import TreeWatches
from gridstat.model.errors import LimitReached

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_context import TreeContext


class Components:
    """Each imports only those made before it; the rest hears of things by what is set here."""

    def __init__(self, context: TreeContext) -> None:
        self.context = context
        self.borders = TreeBorders(context)
        self.graph = BorderGraph(context, self.borders)
        self.releases = SegmentReleases(context)
        self.commits = SegmentCommits(context)
        self.lookups = PublicationLookups(context, self.graph)
        self.coordinator = Coordinator(context, PathPlanner(context, self.graph), self.releases)
        self.holding_release = HoldingRelease(
            context, self.releases, SubscriberDistances(context, self.borders)
        )
        self.contracts = OwnedContracts(
            context, self.graph, self.lookups, self.coordinator, self.commits, self.holding_release
        )
        self.segments = TreeSegments(
            context, self.lookups, self.coordinator, self.commits, self.holding_release
        )
        self.moved_parts = MovedSegments(context, self.contracts, self.commits, self.segments)
        self.failures = Replanning(context, self.contracts, self.segments)
        self.reconciliation = Reconciliation(
            context, self.coordinator, self.releases, self.commits, self.failures
        )
        self.flooding = TreeFlooding(context, context.state.flooding, self.lookups.find)
        self.leases = IdentifierLeases(context)
        self.watches = TreeWatches(context)
        self.membership = Membership(context, self.leases)
        self.borders.changed = self.graph.changed
        self.borders.channel_changed = self.failures.channel_changed
        self.holding_release.gone = self.failures.room_is_free
        self.membership.child_joined = self._child_joined
        self.membership.child_left = self._child_left
        self.membership.clouds_changed = self._clouds_changed
        self.membership.parent_joined = self._parent_joined
        self.membership.moved = self._moved
        self.membership.parted = self.holding_release.resume
        self.coordinator.told_too_much = self._told_too_much
        self.reconciliation.told_too_much = self._told_too_much
        self.contracts.endings_above.say_again = self._say_again
        context.state.renumbering = self.coordinator.park_all

    def resume(self) -> None:
        """After a start."""
        self.context.unsettle()
        self.holding_release.resume()
        self.contracts.resume()
        self.failures.resume()
        for number in self.context.state.file_channels.missing_in_file():
            self.failures.channel_changed(number)

    def _child_joined(self, child: str) -> None:
        self.failures.child_joined(child)
        self.reconciliation.child_joined(child)
        self.borders.child_joined(child)
        self.releases.child_joined(child)
        self.commits.child_joined(child)
        self.moved_parts.child_joined(child)
        self.coordinator.child_joined(child)
        self.lookups.child_joined(child)
        self.flooding.child_joined(child)
        self.watches.child_joined(child)
        self.failures.try_again(is_new=True)

    def _child_left(self, child: str) -> None:
        self.flooding.child_left(child)
        self.borders.child_left(child)
        self.reconciliation.child_left(child)

    def _told_too_much(self, child: str) -> None:
        most = self.context.settings.unknown_child_max
        text = f"broker {child} holds more than {most} segments that nobody here knows of"
        self.membership.send_away(child, LimitReached(text))

    def _say_again(self, child: str) -> None:
        text = f"broker {child} has ended more than was kept while the parent was away"
        self.membership.send_away(child, LimitReached(text, hint="it joins, and says it again"))

    def _clouds_changed(self, child: str) -> None:
        self.borders.refresh([child])
        self.watches.send_all(child)

    def _moved(self) -> None:
        """Whatever was ordered may go by other numbers now, and floods by another depth."""
        self.borders.refresh(sorted(self.context.joined))
        self.flooding.moved()

    def _parent_joined(self) -> None:
        self.borders.parent_joined()
        self.graph.report_to_parent(is_forced=True)
        self.segments.parent_joined()
        self.moved_parts.parent_joined()
        self.failures.parent_joined()
        self.leases.parent_joined()
        self.contracts.parent_joined()
        self.watches.parent_joined()
