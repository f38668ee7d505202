"""Who hears all that floods: a channel from each of its edges on which every flooded event goes."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from msgspec import structs

from gridstat.broker.tables.orders import hearing_order

if TYPE_CHECKING:
    from gridstat.broker.records.applied import Applied
    from gridstat.broker.records.operations import Attached, FloodedHeard
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.router_tables import RouterTables


class HearingEffects:
    """`registry.hearing` has the channels that are ordered, or will be once it is durable."""

    def __init__(self, registry: Registry, tables: RouterTables) -> None:
        self._registry = registry
        self._tables = tables

    def apply(self, operation: FloodedHeard, done: Applied) -> None:
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

    def _set(self, endpoint: str, found: FloodedHeard | None) -> None:
        if found is None:
            self._registry.hearing.pop(endpoint, None)
        else:
            self._registry.hearing[endpoint] = found

    def _order(self, found: FloodedHeard) -> None:
        endpoint = self._registry.endpoints.get(found.endpoint)
        for edge, number in found.channels.items():
            attachment = None if endpoint is None else endpoint.attachments.get(edge)
            if attachment is not None:
                self._tables.put_channel(edge, hearing_order(found, number, attachment.host))
