"""Effects of flooding: every channel is charged, and every router carries the variable.

The operator's request, the parent's request and the parent's reservation are charged separately.
The end of one therefore releases exactly its own charge, and a request that becomes effective again
still has its capacity.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.capacity.resources import UNCHARGED_END, Claim
from gridstat.broker.records.operations import FloodingSet
from gridstat.broker.tables.router_orders import flood_orders, listener_order
from gridstat.model.flooding import FloodTerm, everys_of, in_force, in_scope

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Attached, FloodListenerSet
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable


class FloodingEffects:
    """Applies flooding; `registry.floods` lists what is charged, and ordered once durable."""

    def __init__(
        self,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        ended: Callable[[StatusVariable], None],
    ) -> None:
        """`ended` is called once it is durable that a flooded variable is no longer published."""
        self._registry = registry
        self._reservations = reservations
        self._tables = tables
        self._ended = ended

    def apply(self, operation: FloodingSet, done: Applied) -> None:
        name = operation.variable.name
        before = self._registry.floods.get(name)
        self._replace(name, before, operation)
        done.undo.append(partial(self._replace, name, operation, before))
        if before is not None and before.variable != operation.variable:
            done.tables.append(partial(self._order, FloodingSet(variable=before.variable)))
        done.tables.append(partial(self._order, operation))

    def withdraw(self, name: str, done: Applied) -> None:
        """End the flooding of a variable that is no longer published."""
        found = self._registry.floods.get(name)
        if found is not None:
            self.apply(FloodingSet(variable=found.variable), done)
            done.tables.append(partial(self._ended, found.variable))

    def channel_added(self, channel_id: int, done: Applied) -> None:
        """Charge a new channel for all flooded variables."""
        claims = self.claims_on(channel_id)
        if claims:
            self._reservations.take(claims)
            done.undo.append(partial(self._reservations.give_back, claims))

    def channel_removed(self, channel_id: int, done: Applied) -> None:
        """Release the flooding claims on a channel that is about to be removed."""
        claims = self.claims_on(channel_id)
        if claims:
            self._reservations.give_back(claims)
            done.undo.append(partial(self._reservations.take, claims))

    def claims_on(self, channel_id: int) -> list[Claim]:
        """Return the claims of all flooded variables on one channel."""
        return [
            claim
            for found in self._registry.floods.values()
            for claim in flooding_claims(found, (channel_id,))
        ]

    def change_borders(self, change: Callable[[], None], done: Applied) -> None:
        """Run a change of channels between clouds, and charge the routers at them anew."""
        floods = self._registry.floods.values()
        before = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.give_back(before)
        done.undo.append(partial(self._reservations.take, before))
        change()
        after = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.take(after)
        done.undo.append(partial(self._reservations.give_back, after))

    def change_router(self, name: str, change: Callable[[], None], done: Applied) -> None:
        """Run the addition or removal of a router; a border router is charged while it exists."""
        if self._registry.tree.borders_at(name):
            self.change_borders(change, done)
        else:
            change()

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

    def router_added(self, name: str, done: Applied) -> None:
        """Order all flooded variables at a new router."""
        done.tables += [
            partial(self._order, found, (name,)) for found in self._registry.floods.values()
        ]

    def order_all(self) -> None:
        """Order all floods anew, because the cloud's depth, and so its own level, has changed."""
        for found in self._registry.floods.values():
            self._order(found)

    def _replace(self, name: str, before: FloodingSet | None, after: FloodingSet | None) -> None:
        if after is not None:
            self._reservations.take(self.claims(after))
        if before is not None:
            self._reservations.give_back(self.claims(before))
        if after is None or after.is_over:
            self._registry.floods.pop(name, None)
        else:
            self._registry.floods[name] = after

    def _order(self, found: FloodingSet, routers: Iterable[str] = ()) -> None:
        level = self._registry.tree.depth or 0
        own = {mode: FloodTerm(level, term.every) for mode, term in found.own.items()}
        terms = in_force(own, found.above)
        names = routers or sorted(self._registry.routers)
        self._tables.flood(found.variable, flood_orders(terms), names)


def flooding_claims(found: FloodingSet, channel_ids: Iterable[int]) -> list[Claim]:
    """Return the claims of each request of a flooded variable on these channels."""
    return [
        Claim(found.variable, (), tuple(channel_ids), everys_of(terms), "")
        for terms in (found.own, found.above, found.reserved)
        if terms
    ]


def _claims_at(
    variable: StatusVariable, number: int, channel: EventChannel, everys: Mapping[int, int]
) -> tuple[Claim, Claim]:
    """Return the claims of a flooded variable on the sending and receiving end of a channel."""
    name = f"channel {number}"
    return (
        Claim(variable, (channel.from_router,), (), everys, name, entry=UNCHARGED_END),
        Claim(variable, (channel.to_router,), (), everys, UNCHARGED_END, entry=name),
    )


# Who hears all that floods: a channel from each of its edges on which every flooded event goes.


class FloodListenerEffects:
    """Effects of flood listeners: end-points that receive every flooded event.

    A listener has a channel from each of its edges. `registry.flood_listeners` lists the
    channels that are ordered, or will be once the operation is durable.
    """

    def __init__(self, registry: Registry, tables: RouterTables) -> None:
        self._registry = registry
        self._tables = tables

    def apply(self, operation: FloodListenerSet, done: Applied) -> None:
        hearing, name = self._registry.flood_listeners, operation.endpoint
        before = hearing.get(name)
        numbers = operation.channels.values()
        self._registry.channel_id_last = max(self._registry.channel_id_last, 0, *numbers)
        self._set(name, operation if operation.channels else None)
        done.undo.append(partial(self._set, name, before))
        for edge, number in (before.channels if before is not None else {}).items():
            if operation.channels.get(edge) != number:
                done.tables.append(partial(self._tables.remove_channel, edge, number))
        done.tables.append(partial(self._order, operation))

    def attached(self, operation: Attached, done: Applied) -> None:
        """Remove the channels of an earlier process; order them again for the same process."""
        found = self._registry.flood_listeners.get(operation.endpoint)
        if found is not None and found.incarnation != operation.incarnation:
            self.apply(structs.replace(found, channels={}), done)
        elif found is not None:
            done.tables.append(partial(self._order, found))

    def attachment_ended(self, endpoint: str, edge: str, done: Applied) -> None:
        """Remove the channel from an edge to which the end-point is no longer attached."""
        found = self._registry.flood_listeners.get(endpoint)
        if found is not None and edge in found.channels:
            left = {name: each for name, each in found.channels.items() if name != edge}
            self.apply(structs.replace(found, channels=left), done)

    def endpoint_ended(self, endpoint: str, done: Applied) -> None:
        found = self._registry.flood_listeners.get(endpoint)
        if found is not None:
            self.apply(structs.replace(found, channels={}), done)

    def _set(self, endpoint: str, found: FloodListenerSet | None) -> None:
        if found is None:
            self._registry.flood_listeners.pop(endpoint, None)
        else:
            self._registry.flood_listeners[endpoint] = found

    def _order(self, found: FloodListenerSet) -> None:
        endpoint = self._registry.endpoints.get(found.endpoint)
        for edge, number in found.channels.items():
            attachment = None if endpoint is None else endpoint.attachments.get(edge)
            if attachment is not None:
                self._tables.put_channel(edge, listener_order(found, number, attachment.host))
