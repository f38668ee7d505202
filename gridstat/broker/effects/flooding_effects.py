"""Flooded variables: charged on every channel of the cloud, and carried by every router of it.

Each request, an operator's, the parent's and one that the parent has only reserved, is charged on
its own, so whichever goes gives back exactly what it took, and whatever comes back into force finds
its room.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.capacity.claims import WITHIN, Claim
from gridstat.broker.records.operations import FloodingSet
from gridstat.broker.tables.router_orders import flood_orders, hearing_order
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
    """`registry.floods` is what is charged, and what routers have once it is durable."""

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
        """The variable is no longer published: nothing of it is left to be flooded."""
        found = self._registry.floods.get(name)
        if found is not None:
            self.apply(FloodingSet(variable=found.variable), done)
            done.tables.append(partial(self._ended, found.variable))

    def channel_added(self, channel_id: int, done: Applied) -> None:
        """A new channel carries all that is flooded, like any other."""
        claims = self.claims_on(channel_id)
        if claims:
            self._reservations.take(claims)
            done.undo.append(partial(self._reservations.give_back, claims))

    def channel_removed(self, channel_id: int, done: Applied) -> None:
        """The channel is about to go, and with it what flooding takes of it."""
        claims = self.claims_on(channel_id)
        if claims:
            self._reservations.give_back(claims)
            done.undo.append(partial(self._reservations.take, claims))

    def claims_on(self, channel_id: int) -> list[Claim]:
        """What all that floods takes of one channel."""
        return [
            claim
            for found in self._registry.floods.values()
            for claim in flooding_claims(found, (channel_id,))
        ]

    def change_borders(self, change: Callable[[], None], done: Applied) -> None:
        """Channels between clouds come, go or change by this; routers at them are charged anew."""
        floods = self._registry.floods.values()
        before = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.give_back(before)
        done.undo.append(partial(self._reservations.take, before))
        change()
        after = [claim for found in floods for claim in self._border_claims(found)]
        self._reservations.take(after)
        done.undo.append(partial(self._reservations.give_back, after))

    def change_router(self, name: str, change: Callable[[], None], done: Applied) -> None:
        """A router comes or goes by this; at a border it is charged for as long as it is there."""
        if self._registry.tree.borders_at(name):
            self.change_borders(change, done)
        else:
            change()

    def claims(self, found: FloodingSet) -> list[Claim]:
        """All that a flooded variable takes of this cloud."""
        inside = flooding_claims(found, sorted(self._registry.channels))
        return [*inside, *self._border_claims(found)]

    def _border_claims(self, found: FloodingSet) -> list[Claim]:
        """What it costs our routers to send it to other clouds, and to take it from there.

        The channels are their owners'. Every one that leads here brings a copy, and a router takes
        each of them, also those that it then drops.
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
        """A new router carries all that is flooded, like any other."""
        done.tables += [
            partial(self._order, found, (name,)) for found in self._registry.floods.values()
        ]

    def order_all(self) -> None:
        """The cloud has another depth: every scope that is its own is another number."""
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
    """What each request of a flooded variable takes of these channels."""
    return [
        Claim(found.variable, (), tuple(channel_ids), everys_of(terms), "")
        for terms in (found.own, found.above, found.reserved)
        if terms
    ]


def _claims_at(
    variable: StatusVariable, number: int, channel: EventChannel, everys: Mapping[int, int]
) -> tuple[Claim, Claim]:
    """What a flooded variable costs the sending and the receiving end of a channel."""
    name = f"channel {number}"
    return (
        Claim(variable, (channel.from_router,), (), everys, name, entry=WITHIN),
        Claim(variable, (channel.to_router,), (), everys, WITHIN, entry=name),
    )


# Who hears all that floods: a channel from each of its edges on which every flooded event goes.


class FloodListenerEffects:
    """`registry.hearing` has the channels that are ordered, or will be once it is durable."""

    def __init__(self, registry: Registry, tables: RouterTables) -> None:
        self._registry = registry
        self._tables = tables

    def apply(self, operation: FloodListenerSet, done: Applied) -> None:
        hearing, name = self._registry.hearing, operation.endpoint
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
        """Another process of the end-point, or another edge, has none of the old ports."""
        found = self._registry.hearing.get(operation.endpoint)
        if found is not None and found.incarnation != operation.incarnation:
            self.apply(structs.replace(found, channels={}), done)
        elif found is not None:
            done.tables.append(partial(self._order, found))

    def left(self, endpoint: str, edge: str, done: Applied) -> None:
        """The end-point is no longer attached to this edge."""
        found = self._registry.hearing.get(endpoint)
        if found is not None and edge in found.channels:
            left = {name: each for name, each in found.channels.items() if name != edge}
            self.apply(structs.replace(found, channels=left), done)

    def gone(self, endpoint: str, done: Applied) -> None:
        found = self._registry.hearing.get(endpoint)
        if found is not None:
            self.apply(structs.replace(found, channels={}), done)

    def _set(self, endpoint: str, found: FloodListenerSet | None) -> None:
        if found is None:
            self._registry.hearing.pop(endpoint, None)
        else:
            self._registry.hearing[endpoint] = found

    def _order(self, found: FloodListenerSet) -> None:
        endpoint = self._registry.endpoints.get(found.endpoint)
        for edge, number in found.channels.items():
            attachment = None if endpoint is None else endpoint.attachments.get(edge)
            if attachment is not None:
                self._tables.put_channel(edge, hearing_order(found, number, attachment.host))
