"""Effects of operations on end-points and their publications, and on changes of period.

A change of period adds a new identifier of the variable beside the old one. Routers carry both
until the change ends, also across a restart of the broker, so the events of a publisher are known
before and after it switches.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    Answered,
    Attached,
    AttachmentEnded,
    EndPointEnded,
    PublicationAnnounced,
    PublicationMoved,
    PublicationRetired,
    Published,
    Withdrawn,
)
from gridstat.broker.records.registry import Attachment, EndPoint, Publication, PublicationChange

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.leaf_capability import Apply
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.status import StatusVariable


class RegistrationEffects:
    """Applies registrations; a variable has a source at each edge of its publisher, no other."""

    def __init__(
        self,
        registry: Registry,
        reservations: Reservations,
        tables: RouterTables,
        channel_plan: ChannelPlan,
    ) -> None:
        self._registry = registry
        self._reservations = reservations
        self._tables = tables
        self._channel_plan = channel_plan

    def endpoint_operations(self) -> dict[type[Operation], Apply]:
        return {
            Attached: self._attach,
            AttachmentEnded: self._end_attachment,
            EndPointEnded: self._end_endpoint,
        }

    def publication_operations(self) -> dict[type[Operation], Apply]:
        return {Published: self._publish, Withdrawn: self._withdraw}

    def answer_operations(self) -> dict[type[Operation], Apply]:
        return {Answered: self._answer}

    # End-points.

    def _attach(self, operation: Attached, done: Applied) -> None:
        registry = self._registry
        endpoint = registry.endpoints.get(operation.endpoint)
        if endpoint is None:
            endpoint = EndPoint(operation.endpoint, "", b"", 0)
            floor = registry.retired.pop(operation.endpoint, None)
            if floor is not None:
                endpoint.answer_cache.floor = floor
                done.undo.append(partial(registry.retire, operation.endpoint, floor))
            registry.endpoints[operation.endpoint] = endpoint
            done.undo.append(partial(registry.endpoints.pop, operation.endpoint, None))
        endpoint.answer_cache.floor = max(endpoint.answer_cache.floor, operation.floor)
        done.undo.append(_replace_identity(endpoint, operation))
        attachment = Attachment(
            edge=operation.edge,
            edge_instance=operation.edge_instance,
            up_channel_id=operation.up_channel_id,
            down_channel_id=operation.down_channel_id,
            host=operation.host,
            data_port=operation.data_port,
            urgent_port=operation.urgent_port,
            datagram_versions=operation.datagram_versions,
            security=operation.security,
        )
        old = endpoint.attachments.get(operation.edge)
        registry.add_attachment(endpoint, attachment)
        registry.channel_id_last = max(
            registry.channel_id_last, operation.up_channel_id, operation.down_channel_id
        )
        variables = self._variables_of(endpoint)
        if old is None:
            self._charge(variables, operation.edge)
            done.undo += [
                partial(registry.remove_attachment, endpoint, operation.edge),
                partial(self._discharge, variables, operation.edge),
            ]
        else:
            done.undo.append(partial(registry.add_attachment, endpoint, old))
            if old.up_channel_id != attachment.up_channel_id:
                done.tables.append(partial(self._channel_plan.close_attachment, old))
        done.tables.append(partial(self._open, endpoint.name, attachment, variables))

    def _end_attachment(self, operation: AttachmentEnded, done: Applied) -> None:
        endpoint = self._registry.endpoints.get(operation.endpoint)
        if endpoint is None:
            return
        attachment = self._registry.remove_attachment(endpoint, operation.edge)
        if attachment is not None:
            variables = self._variables_of(endpoint)
            self._discharge(variables, operation.edge)
            done.undo += [
                partial(self._charge, variables, operation.edge),
                partial(self._registry.add_attachment, endpoint, attachment),
            ]
            done.tables.append(partial(self._close, attachment, variables))

    def _end_endpoint(self, operation: EndPointEnded, done: Applied) -> None:
        registry = self._registry
        endpoint = registry.endpoints.pop(operation.endpoint, None)
        registry.retire(operation.endpoint, operation.floor)
        begun = registry.tree.begun
        for key in [key for key in begun if key[0] == operation.endpoint]:
            done.undo.append(partial(begun.__setitem__, key, begun.pop(key)))
        done.tables.append(partial(registry.tree.news.left.append, operation.endpoint))
        if endpoint is not None:
            done.undo += [
                partial(registry.endpoints.__setitem__, endpoint.name, endpoint),
                partial(registry.retired.pop, endpoint.name, None),
            ]

    def _answer(self, operation: Answered, done: Applied) -> None:
        endpoint = self._registry.endpoints.get(operation.endpoint)
        if endpoint is not None:
            book, request_id = endpoint.answer_cache, operation.request_id
            begun = self._registry.tree.begun
            outcomes = begun.pop((endpoint.name, request_id), None)
            if outcomes is not None:
                key = endpoint.name, request_id
                done.undo.append(partial(begun.__setitem__, key, outcomes))
            before = book.held.get(request_id)
            book.put(request_id, operation.body)
            done.undo.append(
                partial(book.forget, request_id)
                if before is None
                else partial(book.put, request_id, before)
            )

    # Publications.

    def _publish(self, operation: Published, done: Applied) -> None:
        registry, variable = self._registry, operation.variable
        registry.variable_id_last = max(registry.variable_id_last, variable.variable_id)
        known = registry.publications.get(variable.name)
        if known is not None:
            done.undo += [
                partial(setattr, known, "is_dormant", known.is_dormant),
                partial(setattr, known, "request_id", known.request_id),
            ]
            known.is_dormant = operation.is_dormant
            known.request_id = operation.request_id
            return
        registry.add_publication(
            Publication(
                variable,
                operation.publisher,
                is_dormant=operation.is_dormant,
                request_id=operation.request_id,
            )
        )
        done.undo.append(partial(registry.remove_publication, variable.name))
        up_channels = self._up_channels(operation.publisher)
        edges = [edge for edge, _ in up_channels]
        self._reservations.publish(variable, edges)
        done.undo.append(partial(self._reservations.unpublish, variable, edges))
        done.tables.append(partial(self._set_sources, variable, up_channels))
        done.tables.append(partial(registry.tree.news.published.append, variable.name))

    def _withdraw(self, operation: Withdrawn, done: Applied) -> None:
        publication = self._registry.remove_publication(operation.name)
        if publication is None:
            return
        variable = publication.variable
        edges = [edge for edge, _ in self._up_channels(publication.publisher)]
        self._reservations.unpublish(variable, edges)
        done.undo += [
            partial(self._registry.add_publication, publication),
            partial(self._reservations.publish, variable, edges),
        ]
        done.tables.append(partial(self._set_sources, variable, [(edge, 0) for edge in edges]))
        freed = self._registry.tree.news.freed
        done.tables.append(partial(freed.append, variable.variable_id))
        if publication.change is not None:
            self.retire_old(publication, done)

    def _up_channels(self, publisher: str) -> list[tuple[str, int]]:
        endpoint = self._registry.endpoints.get(publisher)
        attachments = {} if endpoint is None else endpoint.attachments
        return [(edge, attachments[edge].up_channel_id) for edge in sorted(attachments)]

    def retire_old(self, publication: Publication, done: Applied) -> None:
        """Remove the sources of a changed variable's old identifier."""
        assert publication.change is not None
        old = publication.change.old
        edges = [edge for edge, _ in self._up_channels(publication.publisher)]
        self._reservations.unpublish(old, edges)
        done.undo.append(partial(self._reservations.publish, old, edges))
        done.tables.append(partial(self._set_sources, old, [(edge, 0) for edge in edges]))
        done.tables.append(partial(self._registry.tree.news.freed.append, old.variable_id))

    def _variables_of(self, endpoint: EndPoint) -> list[StatusVariable]:
        """Return all variables of an end-point, also old identifiers during a change of period."""
        found = [self._registry.publications[name] for name in sorted(endpoint.publications)]
        changing = [one.change.old for one in found if one.change is not None]
        return [*(one.variable for one in found), *changing]

    def _charge(self, variables: Iterable[StatusVariable], edge: str) -> None:
        for variable in variables:
            self._reservations.publish(variable, (edge,))

    def _discharge(self, variables: Iterable[StatusVariable], edge: str) -> None:
        for variable in variables:
            self._reservations.unpublish(variable, (edge,))

    def _open(
        self, endpoint: str, attachment: Attachment, variables: Iterable[StatusVariable]
    ) -> None:
        self._channel_plan.open_attachment(endpoint, attachment)
        for variable in variables:
            self._tables.set_source(attachment.edge, variable, attachment.up_channel_id)

    def _close(self, attachment: Attachment, variables: Iterable[StatusVariable]) -> None:
        for variable in variables:
            self._tables.set_source(attachment.edge, variable, 0)
        self._channel_plan.close_attachment(attachment)

    def _set_sources(
        self, variable: StatusVariable, up_channels: Iterable[tuple[str, int]]
    ) -> None:
        for edge, channel_id in up_channels:
            self._tables.set_source(edge, variable, channel_id)


class PublicationChangeEffects:
    """Applies changes of period; `Registry.changing` names the publications that have one."""

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

    def operations(self) -> dict[type[Operation], Apply]:
        return {
            PublicationMoved: self._move,
            PublicationAnnounced: self._announce,
            PublicationRetired: self._retire,
        }

    def _announce(self, operation: PublicationAnnounced, done: Applied) -> None:
        found = self._registry.publications.get(operation.name)
        if found is not None and found.change is not None:
            done.undo.append(partial(setattr, found.change, "from_ns", found.change.from_ns))
            found.change.from_ns = operation.from_ns

    def _move(self, operation: PublicationMoved, done: Applied) -> None:
        registry, variable = self._registry, operation.variable
        registry.variable_id_last = max(registry.variable_id_last, variable.variable_id)
        publication = registry.publications.get(variable.name)
        if publication is None or publication.variable.variable_id == variable.variable_id:
            return
        old = publication.variable
        publisher = registry.endpoints.get(publication.publisher)
        attachments = {} if publisher is None else publisher.attachments
        up_channels = {edge: attachments[edge].up_channel_id for edge in sorted(attachments)}
        self._rename(publication, variable)
        done.undo.append(partial(self._rename, publication, old))
        self._reservations.publish(variable, up_channels)
        done.undo.append(partial(self._reservations.unpublish, variable, tuple(up_channels)))
        publication.change = PublicationChange(old)
        registry.changing.add(variable.name)
        done.undo.append(partial(self._end_change, publication))
        done.tables.append(partial(self._set_sources, variable, up_channels))

    def _retire(self, operation: PublicationRetired, done: Applied) -> None:
        publication = self._registry.publications.get(operation.name)
        if publication is None or publication.change is None:
            return
        change = publication.change
        self._retire_contracts(publication, done)
        self._registrations.retire_old(publication, done)
        self._end_change(publication)
        done.undo.append(partial(self._resume_change, publication, change))

    def _retire_contracts(self, publication: Publication, done: Applied) -> None:
        """Retire what this change and the moves before it replaced.

        A later move ends by itself: its old paths have the new identifier, and stay until its new
        paths are confirmed.
        """
        for number in sorted(publication.subscriptions):
            subscription = self._registry.subscriptions[number]
            held = [found.generation for found in subscription.retiring if found.is_held]
            if held:
                subscription.retire(held[-1], done, with_held=True)

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

    def _set_sources(self, variable: StatusVariable, up_channels: dict[str, int]) -> None:
        for edge, channel_id in up_channels.items():
            self._tables.set_source(edge, variable, channel_id)


def _replace_identity(endpoint: EndPoint, operation: Attached) -> partial[None]:
    """Set the identity of the attached process; return the step that restores the previous one."""
    before = partial(
        _set_identity,
        endpoint,
        endpoint.incarnation,
        endpoint.public_key,
        endpoint.not_after_s,
        is_restarted=endpoint.is_restarted,
        known_since=endpoint.known_since,
    )
    _set_identity(
        endpoint,
        operation.incarnation,
        operation.public_key,
        operation.not_after_s,
        is_restarted=operation.is_restarted,
        known_since=operation.known_since,
    )
    return before


def _set_identity(
    endpoint: EndPoint,
    incarnation: str,
    public_key: bytes,
    not_after_s: int,
    *,
    is_restarted: bool,
    known_since: int,
) -> None:
    endpoint.incarnation = incarnation
    endpoint.public_key = public_key
    endpoint.not_after_s = not_after_s
    endpoint.is_restarted = is_restarted
    endpoint.known_since = known_since
