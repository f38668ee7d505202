"""Limited flooding as a capability of a leaf broker: its parts, and all that they register."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.floods.flood_listeners import FloodListeners
from gridstat.broker.floods.flooding_effects import FloodingEffects, FloodListenerEffects
from gridstat.broker.floods.leaf_flooding import LeafFlooding, send_ended
from gridstat.broker.floods.leaf_flooding_operations import (
    FloodingSet,
    FloodListenerSet,
    FloodRecords,
)
from gridstat.broker.leaf_capability import LeafCapability
from gridstat.broker.records.operations import (
    Attached,
    AttachmentEnded,
    ChannelAdded,
    ChannelRemoved,
    EndPointEnded,
    RouterAdded,
    RouterRemoved,
    RouterReported,
    Withdrawn,
)
from gridstat.broker.records.parent_operations import BorderClosed, BorderOpened, ParentJoined
from gridstat.net.command.endpoint_messages import ChangePublication, ListenToFloods
from gridstat.net.command.operator_messages import (
    AddChannel,
    ListFlooding,
    RemoveChannel,
    RemoveFlooding,
    SetFlooding,
)
from gridstat.net.command.router_messages import FLOODS_SCHEMA
from gridstat.net.command.tree_messages import CommitFlooding, ReleaseFlooding, ReserveFlooding

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.requests.request_intake import RequestIntake
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.net.command.session_messages import Hello


class LeafFloods:
    """Owns the parts of flooding in one cloud, and their durable state `records`."""

    def __init__(
        self, context: BrokerContext, parent: ParentSession, requests: RequestIntake
    ) -> None:
        registry, tables = context.registry, context.tables
        self._tables = tables
        self.records = FloodRecords()
        self._effects = FloodingEffects(
            self.records, registry, context.reservations, tables, partial(send_ended, parent)
        )
        self._listener_effects = FloodListenerEffects(self.records, registry, tables)
        self._flooding = LeafFlooding(context, self.records, self._effects, parent)
        self.listeners = FloodListeners(context, self.records, requests)

    def capability(self) -> LeafCapability:
        effects, listeners, flooding = self._effects, self._listener_effects, self._flooding
        return LeafCapability(
            name="floods",
            operations={FloodingSet: effects.apply, FloodListenerSet: listeners.apply},
            around={
                Withdrawn: effects.around_withdrawn,
                ChannelAdded: effects.around_channel_added,
                ChannelRemoved: effects.around_channel_removed,
                RouterAdded: effects.around_router_added,
                RouterRemoved: effects.around_router_removed,
                BorderOpened: effects.around_border,
                BorderClosed: effects.around_border,
                ParentJoined: effects.around_parent_joined,
                Attached: listeners.around_attached,
                RouterReported: listeners.around_router_reported,
                AttachmentEnded: listeners.around_attachment_ended,
                EndPointEnded: listeners.around_endpoint_ended,
            },
            snapshot=self.records.snapshot,
            orphaned=flooding.orphaned,
            endpoint_queries={ListenToFloods: self.listeners.listen},
            operator_commands={
                SetFlooding: flooding.set_flooding,
                RemoveFlooding: flooding.remove_flooding,
                ListFlooding: flooding.list_floods,
            },
            objections={
                AddChannel: flooding.check_new_channel,
                RemoveChannel: flooding.check_channel_end,
                ChangePublication: flooding.check_period,
            },
            parent_messages=dict.fromkeys(
                (ReserveFlooding, CommitFlooding, ReleaseFlooding), flooding.handle_order
            ),
            router_connected=self._note_support,
            modes_named=self._modes,
        )

    def _note_support(self, router: str, hello: Hello) -> None:
        """Record whether a router's release supports flooding."""
        flooded = [found.variable for found in self.records.variables.values()]
        is_supported = hello.schema_version >= FLOODS_SCHEMA
        self._tables.set_flooding_support(router, flooded, is_supported=is_supported)

    def _modes(self) -> list[set[int]]:
        return [found.modes for found in self.records.variables.values()]
