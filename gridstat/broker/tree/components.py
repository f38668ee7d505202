"""All components of a broker above clouds, and the ordered list of its capabilities.

Collaborators are constructor arguments. Events of the broker (a child has joined, a channel was
added, a timer has fired) reach the capabilities in the order of the list. Where a component made
early has to notify one made later, it takes a small listener (`BorderListener`, `ReleaseListener`,
…). `Components` is the one listener of them all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.floods.tree_flooding import TreeFlooding
from gridstat.broker.keys.tree_keys import TreeKeys
from gridstat.broker.tree.border_graph import BorderGraph
from gridstat.broker.tree.channel_commands import ChannelCommands
from gridstat.broker.tree.child_commands import ChildCommands
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
from gridstat.broker.tree.scope_inspection import ScopeInspection
from gridstat.broker.tree.search_turns import SearchTurns
from gridstat.broker.tree.segment_commits import SegmentCommits
from gridstat.broker.tree.segment_dispatcher import SegmentDispatcher
from gridstat.broker.tree.segment_releases import HoldingRelease, SegmentReleases
from gridstat.broker.tree.subscriber_distances import SubscriberDistances
from gridstat.broker.tree.tree_borders import TreeBorders
from gridstat.broker.tree.tree_capability import TreeCapabilities
from gridstat.broker.tree.tree_context import TreeContext
from gridstat.broker.tree.tree_operator_commands import TreeOperatorCommands
from gridstat.broker.tree.tree_segments import TreeSegments
from gridstat.broker.tree.tree_state import TreeState
from gridstat.broker.tree.tree_watches import TreeWatches
from gridstat.model.quota import exact_share

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.context import Outside
    from gridstat.broker.tree.contract_damage import Damage, Impaired
    from gridstat.broker.tree.membership import ParentMessageHandler
    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_capability import TreeCapability
    from gridstat.broker.tree.tree_operations import Holding
    from gridstat.broker.tree.tree_settings import TreeSettings
    from gridstat.model.cloud import EventChannel
    from gridstat.net.command.segment_messages import LowerContract


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
        self.capabilities = TreeCapabilities()
        self.state = TreeState(children, OwnedChannels(channels), self.capabilities)
        self.state.channels.shares.share_max = exact_share(settings.capacity_share_max)
        self.context = context = TreeContext(settings, outside, self.state)
        self.leases = IdentifierLeases(context)
        self.membership = Membership(context, self.leases, self.capabilities, handler)
        self.borders = TreeBorders(context, self)
        self.graph = BorderGraph(context, self.borders, self)
        self.releases = SegmentReleases(context, self)
        self.commits = SegmentCommits(context)
        self.lookups = PublicationLookups(context, self.graph)
        planner = PathPlanner(context, self.graph)
        turns = SearchTurns(context)
        self.coordinator = Coordinator(
            context, planner, self.releases, self.membership, turns, self
        )
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
            turns,
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
        self.operators = TreeOperatorCommands(context, self.capabilities)
        self.capabilities.register(self._ordered())

    def _ordered(self) -> list[TreeCapability]:
        """Return all capabilities in the order in which each event reaches them.

        The order of snapshots is: place, children, channels, identifiers, holdings, floods.

        A child that joins gets its borders first, then orders about segments, then look-ups, floods
        and watches. Replanning comes last, because it reserves new segments by what the others
        have changed. Releases stand before abstract links: when a child is removed, its open
        releases end while the graph still has its links.

        The parent gets borders and abstract links first, since it plans with them; then segments,
        requests for identifiers and contracts, and watches.
        """
        context, operators, borders = self.context, self.operators, self.borders
        children = ChildCommands(context, operators, self.capabilities, self.membership, borders)
        segments = SegmentDispatcher(
            self.coordinator,
            self.commits,
            self.segments,
            self.moved_segments,
            self.reconciliation,
            self.replanning,
        )
        inspection = ScopeInspection(context, operators, self.capabilities, self.replanning)
        return [
            children.capability(),
            ChannelCommands(context, operators, borders).capability(),
            self.holding_release.capability(),
            self.graph.capability(),
            segments.capability(),
            self.leases.capability(),
            self.contracts.capability(),
            self.lookups.capability(),
            self.flooding.capability(),
            self.watches.capability(),
            TreeKeys(context, borders).capability(),
            self.replanning.capability(),
            inspection.capability(),
        ]

    # Events of borders and holdings.

    def borders_changed(self) -> None:
        self.graph.changed()

    def abstract_links_changed(self) -> None:
        self.replanning.try_again()

    def channel_changed(self, channel_id: int) -> None:
        self.replanning.channel_changed(channel_id)

    def child_released(self, key: Key, child: str) -> None:
        self.coordinator.child_released(key, child)

    def capacity_freed(self) -> None:
        self.replanning.capacity_freed()

    # Events of contracts and segments.

    def contract_in_the_way(self, wish: LowerContract) -> None:
        self.contracts.lower(wish)

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
