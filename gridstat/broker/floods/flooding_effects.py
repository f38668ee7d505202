"""Effects of flooding: every channel is charged, and every router carries the variable.

The operator's request, the parent's request and the parent's reservation are charged separately.
The end of one therefore releases exactly its own charge, and a request that becomes effective again
still has its capacity.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from msgspec import structs

from gridstat.broker.capacity.resources import UNCHARGED_END, Claim
from gridstat.broker.floods.leaf_flooding_operations import FloodingSet
from gridstat.broker.tables.channel_plan import may_open
from gridstat.broker.tables.router_orders import flood_orders
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.flooding import FloodTerm, everys_of, in_force, in_scope
from gridstat.net.command.router_messages import ChannelOrder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.floods.leaf_flooding_operations import FloodListenerSet, FloodRecords
    from gridstat.broker.records.operation import Applied
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
    from gridstat.broker.records.registry import Attachment, Registry
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable

    Change: TypeAlias = Callable[[], None]

DEEPEST_LEVEL: Final = 255
"""Level of a channel that lies in the scope of every broker."""


class FloodingEffects:
    """Applies flooding; `records.variables` are charged, and ordered once durable."""

    def __init__(
        self,
        records: FloodRecords,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        ended: Callable[[StatusVariable], None],
    ) -> None:
        """`ended` is called once it is durable that a flooded variable is no longer published."""
        self._floods = records.variables
        self._registry = registry
        self._reservations = reservations
        self._tables = tables
        self._ended = ended

    def apply(self, operation: FloodingSet, done: Applied) -> None:
        name = operation.variable.name
        before = self._floods.get(name)
        self._replace(name, before, operation)
        done.undo.append(partial(self._replace, name, operation, before))
        if before is not None and before.variable != operation.variable:
            done.tables.append(partial(self._order, FloodingSet(variable=before.variable)))
        done.tables.append(partial(self._order, operation))

    # Operations of other capabilities.

    def around_withdrawn(self, operation: Withdrawn, done: Applied, change: Change) -> None:
        """End the flooding of a variable that is no longer published."""
        change()
        found = self._floods.get(operation.name)
        if found is not None:
            self.apply(FloodingSet(variable=found.variable), done)
            done.tables.append(partial(self._ended, found.variable))

    def around_channel_added(self, operation: ChannelAdded, done: Applied, change: Change) -> None:
        """Charge a new channel for all flooded variables."""
        number, known = operation.channel.channel_id, self._registry.channels
        was_known = number in known
        change()
        claims = self.claims_on(number)
        if claims and number in known and not was_known:
            self._reservations.take(claims)
            done.undo.append(partial(self._reservations.give_back, claims))

    def around_channel_removed(
        self, operation: ChannelRemoved, done: Applied, change: Change
    ) -> None:
        """Release the flooding claims on a channel that is about to be removed."""
        claims = self.claims_on(operation.channel_id)
        if claims and operation.channel_id in self._registry.channels:
            self._reservations.give_back(claims)
            done.undo.append(partial(self._reservations.take, claims))
        change()

    def around_router_added(self, operation: RouterAdded, done: Applied, change: Change) -> None:
        """Order all flooded variables at a new router."""
        name = operation.router.name
        was_known = name in self._registry.routers
        self._around_router(name, done, change)
        if not was_known:
            done.tables += [partial(self._order, found, (name,)) for found in self._floods.values()]

    def around_router_removed(
        self, operation: RouterRemoved, done: Applied, change: Change
    ) -> None:
        self._around_router(operation.name, done, change)

    def around_border(self, _: BorderOpened | BorderClosed, done: Applied, change: Change) -> None:
        self._around_borders(done, change)

    def around_parent_joined(self, _: ParentJoined, done: Applied, change: Change) -> None:
        """Order all floods anew: the cloud's depth, and so its own level, may have changed."""
        change()
        done.tables.append(self._order_all)

    def _around_borders(self, done: Applied, change: Change) -> None:
        """Run a change of channels between clouds, and charge the routers at them anew."""
        floods = self._floods.values()
        before = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.give_back(before)
        done.undo.append(partial(self._reservations.take, before))
        change()
        after = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.take(after)
        done.undo.append(partial(self._reservations.give_back, after))

    def _around_router(self, name: str, done: Applied, change: Change) -> None:
        """Run the addition or removal of a router; a border router is charged while it exists."""
        if self._registry.tree.borders_at(name):
            self._around_borders(done, change)
        else:
            change()

    # Claims and orders.

    def claims_on(self, channel_id: int) -> list[Claim]:
        """Return the claims of all flooded variables on one channel."""
        return [
            claim
            for found in self._floods.values()
            for claim in flooding_claims(found, (channel_id,))
        ]

    def claims(self, found: FloodingSet) -> list[Claim]:
        """Return all claims of a flooded variable in this cloud."""
        inside = flooding_claims(found, sorted(self._registry.channels))
        return [*inside, *self._border_claims(found)]

    def _border_claims(self, found: FloodingSet) -> list[Claim]:
        """Return the claims on our border routers for sending to and receiving from other clouds.

        The channels themselves are charged by their owners. Each incoming channel brings a copy of
        every event, and the router receives all copies, also those that it then drops.
        """
        routers = self._registry.routers
        return [
            claim
            for number, border in sorted(self._registry.tree.borders.items())
            for terms in (found.above, found.reserved)
            if (everys := everys_of(in_scope(terms, border.channel.level)))
            for claim in _claims_at(found.variable, number, border.channel, everys)
            if claim.routers[0] in routers
        ]

    def _order_all(self) -> None:
        for found in self._floods.values():
            self._order(found)

    def _replace(self, name: str, before: FloodingSet | None, after: FloodingSet | None) -> None:
        if after is not None:
            self._reservations.take(self.claims(after))
        if before is not None:
            self._reservations.give_back(self.claims(before))
        if after is None or after.is_over:
            self._floods.pop(name, None)
        else:
            self._floods[name] = after

    def _order(self, found: FloodingSet, routers: Iterable[str] = ()) -> None:
        level = self._registry.tree.depth or 0
        own = {mode: FloodTerm(level, term.every) for mode, term in found.own.items()}
        terms = in_force(own, found.above)
        names = routers or sorted(self._registry.routers)
        self._tables.flood(found.variable, flood_orders(terms), names)


def flooding_claims(found: FloodingSet, channel_ids: Iterable[int]) -> list[Claim]:
    """Return the claims of each request of a flooded variable on these channels."""
    return [
        Claim(found.variable, (), tuple(channel_ids), everys_of(terms), ())
        for terms in (found.own, found.above, found.reserved)
        if terms
    ]


def _claims_at(
    variable: StatusVariable, number: int, channel: EventChannel, everys: Mapping[int, int]
) -> tuple[Claim, Claim]:
    """Return the claims of a flooded variable on the sending and receiving end of a channel."""
    name = f"channel {number}"
    return (
        Claim(variable, (channel.from_router,), (), everys, (name,), entries=(UNCHARGED_END,)),
        Claim(variable, (channel.to_router,), (), everys, (UNCHARGED_END,), entries=(name,)),
    )


# Flood listeners: a channel from each of their edges carries every flooded event.


class FloodListenerEffects:
    """Effects of flood listeners: end-points that receive every flooded event.

    A listener has a channel from each of its edges. `records.listeners` lists the channels that
    are ordered, or will be once the operation is durable.
    """

    def __init__(self, records: FloodRecords, registry: Registry, tables: RouterTables) -> None:
        self._listeners = records.listeners
        self._registry = registry
        self._tables = tables

    def apply(self, operation: FloodListenerSet, done: Applied) -> None:
        name = operation.endpoint
        before = self._listeners.get(name)
        numbers = operation.channels.values()
        self._registry.channel_id_last = max(self._registry.channel_id_last, 0, *numbers)
        self._set(name, operation if operation.channels else None)
        done.undo.append(partial(self._set, name, before))
        for edge, number in (before.channels if before is not None else {}).items():
            if operation.channels.get(edge) != number:
                done.tables.append(partial(self._tables.remove_channel, edge, number))
        done.tables.append(partial(self._order, operation))

    # Operations of other capabilities.

    def around_attached(self, operation: Attached, done: Applied, change: Change) -> None:
        """Remove the channels of an earlier process; order them again for the same process."""
        change()
        found = self._listeners.get(operation.endpoint)
        if found is not None and found.incarnation != operation.incarnation:
            self.apply(structs.replace(found, channels={}), done)
        elif found is not None:
            done.tables.append(partial(self._order, found))

    def around_router_reported(
        self, operation: RouterReported, done: Applied, change: Change
    ) -> None:
        """Order the channels from an edge again, or close those on which it no longer agrees."""
        change()
        done.tables += [
            partial(self._order, found)
            for found in self._listeners.values()
            if operation.name in found.channels
        ]

    def around_attachment_ended(
        self, operation: AttachmentEnded, done: Applied, change: Change
    ) -> None:
        """Remove the channel from an edge to which the end-point is no longer attached."""
        change()
        found = self._listeners.get(operation.endpoint)
        if found is not None and operation.edge in found.channels:
            left = {edge: each for edge, each in found.channels.items() if edge != operation.edge}
            self.apply(structs.replace(found, channels=left), done)

    def around_endpoint_ended(
        self, operation: EndPointEnded, done: Applied, change: Change
    ) -> None:
        change()
        found = self._listeners.get(operation.endpoint)
        if found is not None:
            self.apply(structs.replace(found, channels={}), done)

    def _set(self, endpoint: str, found: FloodListenerSet | None) -> None:
        before = self._listeners.get(endpoint)
        self._registry.channel_ids.difference_update(
            () if before is None else before.channels.values()
        )
        self._registry.channel_ids.update(() if found is None else found.channels.values())
        if found is None:
            self._listeners.pop(endpoint, None)
        else:
            self._listeners[endpoint] = found

    def _order(self, found: FloodListenerSet) -> None:
        endpoint = self._registry.endpoints.get(found.endpoint)
        for edge, number in found.channels.items():
            attachment = None if endpoint is None else endpoint.attachments.get(edge)
            if attachment is None:
                continue
            if may_open(self._registry, attachment):
                self._tables.put_channel(edge, listener_order(found, number, attachment))
            else:
                self._tables.remove_channel(edge, number)


def listener_order(
    found: FloodListenerSet, channel_id: int, attachment: Attachment
) -> ChannelOrder:
    """Return the order of the channel from an edge to an end-point that receives all floods."""
    is_sealed = attachment.security == HOP
    return ChannelOrder(
        channel_id=channel_id,
        to=found.endpoint,
        host=attachment.host,
        data_port=found.data_port,
        urgent_port=found.urgent_port,
        level=DEEPEST_LEVEL,
        floods=True,
        datagram_version=SEALED_VERSION if is_sealed else 1,
        is_endpoint=is_sealed,
    )
