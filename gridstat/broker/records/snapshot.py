"""Snapshots: the durable state of each capability as the shortest operations that build it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.operations import (
    Answered,
    Attached,
    ChannelAdded,
    ChannelRemoved,
    EndPointEnded,
    MatchingLeft,
    Moved,
    NumbersReached,
    PublicationAnnounced,
    PublicationMoved,
    Published,
    RouterAdded,
    RouterRemoved,
    TermBegan,
)
from gridstat.broker.records.parent_operations import (
    AnswerBegun,
    BorderOpened,
    ContractEnding,
    ContractHeld,
    NumbersAllotted,
    ParentJoined,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.broker.records.operations import Operation
    from gridstat.broker.records.registry import (
        Attachment,
        EndPoint,
        Publication,
        Registry,
        Subscription,
    )
    from gridstat.model.cloud import EventChannel, Router


def cloud_snapshot(
    registry: Registry, routers: Mapping[str, Router], channels: Mapping[int, EventChannel]
) -> Iterator[Operation]:
    """Yield term, identifiers and topology, given the routers and channels of the broker's file."""
    lost_from, lost_to = registry.terms_lost
    yield TermBegan(
        term=registry.term, journal=registry.journal, lost_from=lost_from, lost_to=lost_to
    )
    yield NumbersReached(
        variable_id=registry.variable_id_last,
        subscription_id=registry.subscription_id_last,
        channel_id=registry.channel_id_last,
        variable_id_first=registry.variable_id_first,
    )
    yield from _topology(registry, routers, channels)


def report_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield the last report of each router."""
    for _, report in sorted(registry.reports.items()):
        yield report


def endpoint_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield the end-points that have left, and the attachments of the others."""
    for name, floor in registry.retired.items():
        if name not in registry.endpoints:
            yield EndPointEnded(endpoint=name, floor=floor)
    for _, endpoint in sorted(registry.endpoints.items()):
        for _, attachment in sorted(endpoint.attachments.items()):
            yield _attached(endpoint, attachment)


def publication_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield the publications; a change of period follows with the contracts."""
    for _, publication in sorted(registry.publications.items()):
        yield Published(
            publisher=publication.publisher,
            variable=publication.change.old if publication.change else publication.variable,
            is_dormant=publication.is_dormant,
            request_id=publication.request_id,
        )


def answer_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield the answers that a repeated request gets again."""
    for name, endpoint in sorted(registry.endpoints.items()):
        for request_id, body in endpoint.answer_cache.durable():
            yield Answered(endpoint=name, request_id=request_id, body=body)


def contract_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield patterns, contracts, and changes of period with the contracts that they move."""
    for _, pattern in sorted(registry.patterns.items()):
        yield pattern
    for pattern_id, name in registry.matching_left:
        yield MatchingLeft(pattern_id=pattern_id, name=name)
    for _, subscription in sorted(registry.subscriptions.items()):
        if subscription.record.name not in registry.changing:
            yield from _moves(subscription)
    for name in sorted(registry.changing):
        yield from _change(registry, registry.publications[name])
    for _, record in sorted(registry.unplaced.items()):
        yield record


def _moves(subscription: Subscription) -> Iterator[Operation]:
    """Yield a contract, beginning with the oldest paths that are still on the routers."""
    records = [*(found.replaced for found in subscription.retiring), subscription.record]
    yield records[0]
    for retiring, record in zip(subscription.retiring, records[1:], strict=True):
        is_held = retiring.is_held
        yield Moved(
            subscription=record,
            with_publication=is_held,
            until_retired=not is_held,
            in_place=retiring.is_in_place,
        )


def _change(registry: Registry, publication: Publication) -> Iterator[Operation]:
    """Yield a change of period under way: the state before it, then the change."""
    after: list[Operation] = []
    for number in sorted(publication.subscriptions):
        is_after = not any(found.is_held for found in registry.subscriptions[number].retiring)
        for operation in _moves(registry.subscriptions[number]):
            is_after |= isinstance(operation, Moved) and operation.with_publication
            if is_after:
                after.append(operation)
            else:
                yield operation
    yield PublicationMoved(variable=publication.variable)
    yield from after
    if publication.change is not None and publication.change.from_ns:
        yield PublicationAnnounced(
            name=publication.variable.name, from_ns=publication.change.from_ns
        )


def _topology(
    registry: Registry, routers: Mapping[str, Router], channels: Mapping[int, EventChannel]
) -> Iterator[Operation]:
    """Yield routers and channels added or removed at run time; channels go before their routers."""
    for channel_id in sorted(channels.keys() - registry.channels.keys()):
        yield ChannelRemoved(channel_id=channel_id)
    for name in sorted(routers.keys() - registry.routers.keys()):
        yield RouterRemoved(name=name)
    for name in sorted(registry.routers.keys() - routers.keys()):
        yield RouterAdded(router=registry.routers[name])
    for channel_id in sorted(registry.channels.keys() - channels.keys()):
        yield ChannelAdded(channel=registry.channels[channel_id])


def position_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield the decisions of the parent that the cloud needs without the parent."""
    tree = registry.tree
    if tree.depth is not None:
        yield ParentJoined(
            term=tree.parent_term,
            depth=tree.depth,
            above=tree.above,
            numbers_used=tree.numbers_used,
        )
    for first, count in tree.blocks:
        yield NumbersAllotted(first=first, count=count)
    for _, border in sorted(tree.borders.items()):
        yield BorderOpened(border=border)


def asked_snapshot(registry: Registry) -> Iterator[Operation]:
    """Yield contracts across clouds, and the answers that wait for them."""
    for number, found in sorted(registry.tree.asked.items()):
        yield found.record
        if found.granted is not None:
            yield ContractHeld(number=number, granted=found.granted)
        if found.change is not None:
            yield found.change
        if found.is_ending:
            yield ContractEnding(number=number)
    for (endpoint, request_id), outcomes in sorted(registry.tree.begun.items()):
        yield AnswerBegun(endpoint=endpoint, request_id=request_id, outcomes=tuple(outcomes))


def _attached(endpoint: EndPoint, attachment: Attachment) -> Attached:
    return Attached(
        endpoint=endpoint.name,
        edge=attachment.edge,
        edge_instance=attachment.edge_instance,
        incarnation=endpoint.incarnation,
        public_key=endpoint.public_key,
        not_after_s=endpoint.not_after_s,
        up_channel_id=attachment.up_channel_id,
        down_channel_id=attachment.down_channel_id,
        is_restarted=endpoint.is_restarted,
        host=attachment.host,
        data_port=attachment.data_port,
        urgent_port=attachment.urgent_port,
        datagram_versions=attachment.datagram_versions,
        security=attachment.security,
        floor=endpoint.answer_cache.durable_floor(),
        known_since=endpoint.known_since,
    )
