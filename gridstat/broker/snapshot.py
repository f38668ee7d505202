"""The whole durable state as the shortest journal that leads to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.operations import (
    Answered,
    Attached,
    ChannelAdded,
    ChannelRemoved,
    EndPointEnded,
    NumbersReached,
    Published,
    RouterAdded,
    RouterRemoved,
    TermBegan,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gridstat.broker.operations import Operation
    from gridstat.broker.registry import Attachment, EndPoint, Registry
    from gridstat.model.cloud import EventChannel, Router


def snapshot_operations(
    registry: Registry, routers: Mapping[str, Router], channels: Mapping[int, EventChannel]
) -> Iterator[Operation]:
    """Operations in an order that can be replayed; the file's routers and channels are given."""
    yield TermBegan(term=registry.term)
    yield NumbersReached(
        variable_id=registry.variable_id_last,
        subscription_id=registry.subscription_id_last,
        channel_id=registry.channel_id_last,
    )
    yield from _topology(registry, routers, channels)
    for _, report in sorted(registry.reports.items()):
        yield report
    for name, floor in registry.retired.items():
        if name not in registry.endpoints:
            yield EndPointEnded(endpoint=name, floor=floor)
    for _, endpoint in sorted(registry.endpoints.items()):
        for _, attachment in sorted(endpoint.attachments.items()):
            yield _attached(endpoint, attachment)
    for _, publication in sorted(registry.publications.items()):
        yield Published(
            publisher=publication.publisher,
            variable=publication.variable,
            is_dormant=publication.is_dormant,
        )
    for _, pattern in sorted(registry.patterns.items()):
        yield pattern
    for _, subscription in sorted(registry.subscriptions.items()):
        yield subscription.record
    for _, record in sorted(registry.homeless.items()):
        yield record
    for name, endpoint in sorted(registry.endpoints.items()):
        for request_id, body in endpoint.book.durable():
            yield Answered(endpoint=name, request_id=request_id, body=body)


def _topology(
    registry: Registry, routers: Mapping[str, Router], channels: Mapping[int, EventChannel]
) -> Iterator[Operation]:
    """What was added and removed at run time; channels go before their routers."""
    for channel_id in sorted(channels.keys() - registry.channels.keys()):
        yield ChannelRemoved(channel_id=channel_id)
    for name in sorted(routers.keys() - registry.routers.keys()):
        yield RouterRemoved(name=name)
    for name in sorted(registry.routers.keys() - routers.keys()):
        yield RouterAdded(router=registry.routers[name])
    for channel_id in sorted(registry.channels.keys() - channels.keys()):
        yield ChannelAdded(channel=registry.channels[channel_id])


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
        floor=endpoint.book.durable_floor(),
    )
