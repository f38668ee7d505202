"""Operations about end-points and what they publish."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    Answered,
    Attached,
    AttachmentEnded,
    EndPointEnded,
    Published,
    Withdrawn,
)
from gridstat.broker.records.registry import Attachment, EndPoint, Publication

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.effects.reservations import Reservations
    from gridstat.broker.records.operation import Applied
    from gridstat.broker.records.registry import Registry
    from gridstat.broker.tables.channel_plan import ChannelPlan
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.status import StatusVariable


class RegistrationEffects:
    """A variable is sourced at exactly the edges to which its publisher is attached."""

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

    def apply(
        self,
        operation: Attached | AttachmentEnded | EndPointEnded | Answered | Published | Withdrawn,
        done: Applied,
    ) -> None:
        match operation:
            case Answered():
                self._answer(operation, done)
            case Attached():
                self._attach(operation, done)
            case AttachmentEnded():
                self._end_attachment(operation, done)
            case EndPointEnded():
                self._end_endpoint(operation, done)
            case Published():
                self._publish(operation, done)
            case Withdrawn():
                self._withdraw(operation, done)

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
        done.undo.append(_identify(endpoint, operation))
        attachment = Attachment(
            edge=operation.edge,
            edge_instance=operation.edge_instance,
            up_channel_id=operation.up_channel_id,
            down_channel_id=operation.down_channel_id,
            host=operation.host,
            data_port=operation.data_port,
            urgent_port=operation.urgent_port,
            datagram_versions=operation.datagram_versions,
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
            done.undo.append(partial(setattr, known, "is_dormant", known.is_dormant))
            known.is_dormant = operation.is_dormant
            return
        registry.add_publication(
            Publication(variable, operation.publisher, is_dormant=operation.is_dormant)
        )
        done.undo.append(partial(registry.remove_publication, variable.name))
        ups = self._up_channels(operation.publisher)
        edges = [edge for edge, _ in ups]
        self._reservations.publish(variable, edges)
        done.undo.append(partial(self._reservations.unpublish, variable, edges))
        done.tables.append(partial(self._set_sources, variable, ups))
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
        """The old identifier of a changed variable is no longer sourced anywhere."""
        assert publication.change is not None
        old = publication.change.old
        edges = [edge for edge, _ in self._up_channels(publication.publisher)]
        self._reservations.unpublish(old, edges)
        done.undo.append(partial(self._reservations.publish, old, edges))
        done.tables.append(partial(self._set_sources, old, [(edge, 0) for edge in edges]))
        done.tables.append(partial(self._registry.tree.news.freed.append, old.variable_id))

    def _variables_of(self, endpoint: EndPoint) -> list[StatusVariable]:
        """All that an end-point sends, under old identifiers too while a change is under way."""
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

    def _set_sources(self, variable: StatusVariable, ups: Iterable[tuple[str, int]]) -> None:
        for edge, channel_id in ups:
            self._tables.set_source(edge, variable, channel_id)


def _identify(endpoint: EndPoint, operation: Attached) -> partial[None]:
    """Make the end-point the process that has attached; the answer makes it the one before."""
    before = partial(
        _become,
        endpoint,
        endpoint.incarnation,
        endpoint.public_key,
        endpoint.not_after_s,
        is_restarted=endpoint.is_restarted,
        known_since=endpoint.known_since,
    )
    _become(
        endpoint,
        operation.incarnation,
        operation.public_key,
        operation.not_after_s,
        is_restarted=operation.is_restarted,
        known_since=operation.known_since,
    )
    return before


def _become(
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
