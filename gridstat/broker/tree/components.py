"""All components of a broker above clouds, and the order in which each event reaches them.

Collaborators are constructor arguments. Where a component made early has to notify one made
later, it takes a small listener (`BorderListener`, `MembershipListener`, …). `Components` is the
one listener of them all: every method below `resume` names an event and calls, in order, each
component that acts on it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from gridstat.broker.floods.tree_flooding import TreeFlooding
from gridstat.broker.tree.border_graph import BorderGraph
from gridstat.broker.tree.coordinator import Coordinator
from gridstat.broker.tree.identifier_leases import IdentifierLeases
from gridstat.broker.tree.membership import Membership
from gridstat.broker.tree.moved_segments import MovedSegments
from gridstat.broker.tree.owned_channels import OwnedChannels
from gridstat.broker.tree.owned_contracts import OwnedContracts
from gridstat.broker.tree.path_planner import PathPlanner
from gridstat.broker.tree.publication_lookups import PublicationLookups
from gridstat.broker.tree.reconciliation import Reconciliation
from gridstat.broker.tree.replanning import Replanning
from gridstat.broker.tree.segment_commits import SegmentCommits
from gridstat.broker.tree.segment_releases import HoldingRelease, SegmentReleases
from gridstat.broker.tree.subscriber_distances import SubscriberDistances
from gridstat.broker.tree.tree_borders import TreeBorders
from gridstat.broker.tree.tree_capability import TreeCapabilities, TreeCapability
from gridstat.broker.tree.tree_context import TreeContext
from gridstat.broker.tree.tree_segments import TreeSegments
from gridstat.broker.tree.tree_state import TreeState
from gridstat.broker.tree.tree_watches import TreeWatches

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import Outside
    from gridstat.broker.tree.contract_damage import Damage, Impaired
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_settings import TreeSettings
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.tree_messages import TreeMessageBase


class ParentMessageHandler(Protocol):
    """Dispatches a message of the parent that Membership has kept until it may be handled."""

    def handle_parent_message(self, message: TreeMessageBase) -> None: ...


class Components:
    """Components in the order of their construction; each knows only those made before it."""

    def __init__(
        self,
        settings: TreeSettings,
        outside: Outside,
        children: Iterable[str],
        channels: Iterable[EventChannel],
        handler: ParentMessageHandler,
    ) -> None:
        self._handler = handler
        self.capabilities = TreeCapabilities()
        self.state = TreeState(children, OwnedChannels(channels), self.capabilities)
        self.context = context = TreeContext(settings, outside, self.state)
        self.leases = IdentifierLeases(context)
        self.membership = Membership(context, self.leases, self)
        self.borders = TreeBorders(context, self)
        self.graph = BorderGraph(context, self.borders)
        self.releases = SegmentReleases(context, self)
        self.commits = SegmentCommits(context)
        self.lookups = PublicationLookups(context, self.graph)
        planner = PathPlanner(context, self.graph)
        self.coordinator = Coordinator(context, planner, self.releases, self.membership)
        self.holding_release = HoldingRelease(
            context, self.releases, SubscriberDistances(context, self.borders), self
        )
        self.contracts = OwnedContracts(
            context,
            self.graph,
            self.lookups,
            self.coordinator,
            self.commits,
            self.holding_release,
            self.membership,
            self,
        )
        self.segments = TreeSegments(
            context, self.lookups, self.coordinator, self.commits, self.holding_release, self
        )
        self.replanning = Replanning(context, self.contracts, self.segments)
        self.moved_segments = MovedSegments(context, self.commits, self.segments, self.replanning)
        self.reconciliation = Reconciliation(
            context,
            self.coordinator,
            self.releases,
            self.commits,
            self.replanning,
            self.membership,
        )
        self.flooding = TreeFlooding(context, self.lookups)
        self.watches = TreeWatches(context)
        self.capabilities.register(
            (
                self.state.capability(),
                TreeCapability(channels_renumbered=self.coordinator.park_all),
                self.flooding.capability(),
            )
        )

    def resume(self) -> None:
        """Continue, after a start, the work that the journal records as unfinished."""
        self.capabilities.resume()
        self.context.unsettle()
        self.holding_release.resume()
        self.contracts.resume()
        self.replanning.resume()
        for number in self.state.file_channels.missing_in_file():
            self.replanning.channel_changed(number)

    # Events of Membership.

    def child_joined(self, child: str) -> None:
        self.replanning.child_joined(child)
        self.reconciliation.child_joined(child)
        self.borders.child_joined(child)
        self.releases.child_joined(child)
        self.commits.child_joined(child)
        self.moved_segments.child_joined(child)
        self.coordinator.child_joined(child)
        self.lookups.child_joined(child)
        self.capabilities.child_joined(child)
        self.watches.child_joined(child)
        self.replanning.try_again(is_new=True)

    def child_left(self, child: str) -> None:
        self.capabilities.child_left(child)
        self.borders.child_left(child)
        self.reconciliation.child_left(child)

    def clouds_changed(self, child: str) -> None:
        self.borders.refresh([child])
        self.watches.send_all(child)

    def parent_joined(self) -> None:
        self.borders.parent_joined()
        self.graph.report_to_parent(is_forced=True)
        self.segments.parent_joined()
        self.moved_segments.parent_joined()
        self.replanning.parent_joined()
        self.leases.parent_joined()
        self.contracts.parent_joined()
        self.watches.parent_joined()

    def parent_replaced(self) -> None:
        self.holding_release.resume()

    def place_changed(self) -> None:
        """Order channels by their present numbers, and floods by the present depth."""
        self.borders.refresh(sorted(self.context.joined))
        self.capabilities.place_changed()

    def parent_message_kept(self, message: TreeMessageBase) -> None:
        self._handler.handle_parent_message(message)

    # Events of the state, borders and holdings.

    def borders_changed(self) -> None:
        self.graph.changed()

    def channel_changed(self, channel_id: int) -> None:
        self.replanning.channel_changed(channel_id)

    def child_released(self, key: Key, child: str) -> None:
        self.coordinator.child_released(key, child)

    def capacity_freed(self) -> None:
        self.replanning.capacity_freed()

    # Events of contracts and segments.

    def contract_settled(self, contract: str) -> None:
        self.replanning.contract_settled(contract)

    def contract_decided(self, holding: Holding) -> None:
        self.replanning.contract_decided(holding)

    def replan_failed(self, contract: str) -> None:
        self.replanning.replan_failed(contract)

    def impairment_of(self, holding: Holding) -> Impaired:
        return self.replanning.impairment_of(holding)

    def damage_of(self, contract: str) -> Damage:
        return self.replanning.damage_of(contract)

    def segment_committed(self, holding: Holding) -> None:
        self.replanning.segment_committed(holding)
