"""Dispatcher of operations to the effects that apply them.

An operation changes the registry and the reservations at once. The changes of the routers' tables
are collected in `Applied.tables` and run when the operation is durable. Every change of the
registry adds its reverse to `Applied.undo`, which runs if the journal cannot store the operation.

A live decision and the replay at a start use the same code, so a restarted broker has the same
state as before. An operation that is applied twice has no further effect.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.effects.cloud_effects import CloudEffects
from gridstat.broker.effects.contract_effects import ContractEffects
from gridstat.broker.effects.registration_effects import (
    PublicationChangeEffects,
    RegistrationEffects,
)
from gridstat.broker.effects.tree_effects import TreeEffects
from gridstat.broker.floods.flooding_effects import FloodingEffects, FloodListenerEffects
from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import (
    Answered,
    Attached,
    AttachmentEnded,
    ChannelAdded,
    ChannelRemoved,
    EndPointEnded,
    FloodingSet,
    FloodListenerSet,
    MatchingLeft,
    Moved,
    NumbersReached,
    PatternHeld,
    PublicationAnnounced,
    PublicationMoved,
    PublicationRetired,
    Published,
    Retired,
    RouterAdded,
    RouterRemoved,
    RouterReported,
    Subscribed,
    TermBegan,
    Unsubscribed,
    Withdrawn,
)
from gridstat.broker.records.parent_operations import (
    BorderClosed,
    BorderOpened,
    ParentJoined,
    SegmentCommitted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.status import StatusVariable


class Effects:
    """Sole writer of the registry's durable part."""

    def __init__(
        self,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        channel_plan: ChannelPlan,
        flooding_ended: Callable[[StatusVariable], None],
    ) -> None:
        self.flooding = FloodingEffects(registry, reservations, tables, flooding_ended)
        self._flood_listeners = FloodListenerEffects(registry, tables)
        self._cloud = CloudEffects(registry, reservations, tables, channel_plan, self.flooding)
        self._registrations = RegistrationEffects(registry, reservations, tables, channel_plan)
        self._contracts = ContractEffects(registry, reservations, tables)
        self._publication_changes = PublicationChangeEffects(
            registry, reservations, tables, self._registrations
        )
        self._tree = TreeEffects(registry, channel_plan)
        self.unwritten: list[Applied] = []
        """Changes of the present unit of work that are visible, but not in the journal yet."""

    def replay(self, operation: Operation) -> None:
        """Apply an operation from the journal, with its changes of tables at once."""
        done = Applied()
        self.apply(operation, done)
        self.unwritten.clear()
        for step in done.tables:
            step()

    def _begin(self, done: Applied) -> None:
        if not any(found is done for found in self.unwritten):
            self.unwritten.append(done)

    def apply(self, operation: Operation, done: Applied) -> None:
        if not self.unwritten or self.unwritten[-1] is not done:
            self._begin(done)
        match operation:
            case (
                Subscribed()
                | Unsubscribed()
                | Moved()
                | Retired()
                | PatternHeld()
                | MatchingLeft()
                | SegmentCommitted()
            ):
                self._contracts.apply(operation, done)
            case (
                Answered()
                | Attached()
                | AttachmentEnded()
                | EndPointEnded()
                | Published()
                | Withdrawn()
            ):
                self._registrations.apply(operation, done)
                self._update_flooding(operation, done)
            case FloodingSet():
                self.flooding.apply(operation, done)
            case FloodListenerSet():
                self._flood_listeners.apply(operation, done)
            case PublicationMoved() | PublicationAnnounced() | PublicationRetired():
                self._publication_changes.apply(operation, done)
            case TermBegan() | NumbersReached():
                self._cloud.count(operation)
            case RouterAdded() | RouterRemoved() | RouterReported():
                self._cloud.change_router(operation, done)
            case ChannelAdded() | ChannelRemoved():
                self._cloud.change_channel(operation, done)
            case BorderOpened() | BorderClosed():
                self.flooding.change_borders(partial(self._tree.apply, operation, done), done)
            case _:
                self._tree.apply(operation, done)
                self._update_flooding(operation, done)

    def _update_flooding(self, operation: Operation, done: Applied) -> None:
        """Update flooding after a change of a publication, an end-point or the parent."""
        match operation:
            case Withdrawn(name=name):
                self.flooding.withdraw(name, done)
            case ParentJoined():
                done.tables.append(self.flooding.order_all)
            case Attached():
                self._flood_listeners.attached(operation, done)
            case AttachmentEnded(endpoint=endpoint, edge=edge):
                self._flood_listeners.attachment_ended(endpoint, edge, done)
            case EndPointEnded(endpoint=endpoint):
                self._flood_listeners.endpoint_ended(endpoint, done)
            case _:
                pass
