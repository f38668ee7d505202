"""Operations about a variable's change of period: a new identifier beside the old one, then alone.

Both are carried until the change is over, also across a restart of the broker, so that neither a
publisher that has not switched yet nor one that has finds its events unknown.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    PublicationAnnounced,
    PublicationMoved,
    PublicationRetired,
)
from gridstat.broker.records.registry import PublicationChange

if TYPE_CHECKING:
    from gridstat.broker.effects.registration_effects import RegistrationEffects
    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.registry import Publication, Registry
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.status import StatusVariable


class PublicationChangeEffects:
    """`Registry.changing` names exactly the publications with a change under way."""

    def __init__(
        self,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        registrations: RegistrationEffects,
    ) -> None:
        self._registrations = registrations
        self._registry = registry
        self._reservations = reservations
        self._tables = tables

    def apply(
        self, operation: PublicationMoved | PublicationAnnounced | PublicationRetired, done: Applied
    ) -> None:
        match operation:
            case PublicationMoved():
                self._move(operation.variable, done)
            case PublicationAnnounced():
                found = self._registry.publications.get(operation.name)
                if found is not None and found.change is not None:
                    done.undo.append(
                        partial(setattr, found.change, "from_ns", found.change.from_ns)
                    )
                    found.change.from_ns = operation.from_ns
            case PublicationRetired():
                self._retire(operation.name, done)

    def _move(self, variable: StatusVariable, done: Applied) -> None:
        registry = self._registry
        registry.variable_id_last = max(registry.variable_id_last, variable.variable_id)
        publication = registry.publications.get(variable.name)
        if publication is None or publication.variable.variable_id == variable.variable_id:
            return
        old = publication.variable
        publisher = registry.endpoints.get(publication.publisher)
        attachments = {} if publisher is None else publisher.attachments
        ups = {edge: attachments[edge].up_channel_id for edge in sorted(attachments)}
        self._rename(publication, variable)
        done.undo.append(partial(self._rename, publication, old))
        self._reservations.publish(variable, ups)
        done.undo.append(partial(self._reservations.unpublish, variable, tuple(ups)))
        publication.change = PublicationChange(old)
        registry.changing.add(variable.name)
        done.undo.append(partial(self._end_change, publication))
        done.tables.append(partial(self._set_sources, variable, ups))

    def _retire(self, name: str, done: Applied) -> None:
        publication = self._registry.publications.get(name)
        if publication is None or publication.change is None:
            return
        change = publication.change
        self._retire_contracts(publication, done)
        self._registrations.retire_old(publication, done)
        self._end_change(publication)
        done.undo.append(partial(self._resume_change, publication, change))

    def _retire_contracts(self, publication: Publication, done: Applied) -> None:
        """Ends all that the present generations of its subscriptions have replaced."""
        for number in sorted(publication.subscriptions):
            subscription = self._registry.subscriptions[number]
            if subscription.retiring:
                subscription.retire(subscription.record.generation, done, with_held=True)

    def _end_change(self, publication: Publication) -> None:
        publication.change = None
        self._registry.changing.discard(publication.variable.name)

    def _resume_change(self, publication: Publication, change: PublicationChange) -> None:
        publication.change = change
        self._registry.changing.add(publication.variable.name)

    def _rename(self, publication: Publication, variable: StatusVariable) -> None:
        self._registry.remove_publication(variable.name)
        publication.variable = variable
        self._registry.add_publication(publication)

    def _set_sources(self, variable: StatusVariable, ups: dict[str, int]) -> None:
        for edge, channel_id in ups.items():
            self._tables.set_source(edge, variable, channel_id)
