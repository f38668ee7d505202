"""Orders to routers, made from contracts and channels.

All functions are pure, so a restarted broker gives the same orders.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.broker.capacity.allocation import gates_used
from gridstat.model.channel_security import HOP, SEALED_VERSION
from gridstat.model.flooding import by_scope
from gridstat.model.identifiers import PATH_CONTRACT_SHIFT, PATH_INDEX_SHIFT
from gridstat.model.probe_law import silence_limit_ms
from gridstat.net.command.router_messages import (
    ChannelOrder,
    FloodOrder,
    PathOrder,
    SourceOrder,
    VariableOrder,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gridstat.broker.records.operations import RouterReported, Subscribed
    from gridstat.broker.records.registry import Attachment
    from gridstat.model.cloud import EventChannel
    from gridstat.model.flooding import FloodTerm
    from gridstat.model.qos import Qos
    from gridstat.model.status import StatusVariable
    from gridstat.net.command.tree_messages import BorderChannel

TERMS_MAX: Final = 16
"""Limit of different qualities of one path over all modes: four bits of a path's identifier."""
PROBED_VERSION_MIN: Final = 2
"""The first version of the datagram that knows probes."""


class RoutedOrder(NamedTuple):
    """Path order and the router that receives it."""

    router: str
    order: PathOrder


def path_orders(record: Subscribed, attachments: Mapping[str, Attachment]) -> list[RoutedOrder]:
    """Return the orders of every router of every path, up to the subscriber or the border."""
    last_hops = exit_channels(record) or [
        attachments[path.routers[-1]].down_channel_id for path in record.paths
    ]
    head = (record.subscription_id << 8 | record.generation & 0xFF) << PATH_CONTRACT_SHIFT
    found = []
    for index, path in enumerate(record.paths):
        terms = terms_of(record.granted, index)
        hops = (*path.channel_ids, last_hops[index])
        for number, (every, priority, modes) in enumerate(terms):
            path_id = head | index << PATH_INDEX_SHIFT | number
            for router, channel_id in zip(path.routers, hops, strict=True):
                order = PathOrder(
                    path_id=path_id,
                    variable_id=record.variable_id,
                    channel_id=channel_id,
                    every=every,
                    modes=modes,
                    priority=priority,
                )
                found.append(RoutedOrder(router, order))
    return found


def exit_channels(record: Subscribed) -> list[int]:
    """Return the channels by which the paths of a segment leave the cloud, in their order."""
    if not record.exits:
        return []
    found = gates_used(record.exits, [path.routers[-1] for path in record.paths])
    assert found is not None, f"segment {record.subscription_id} does not use each of its exits"
    return list(found)


def terms_of(granted: Mapping[int, Qos], index: int) -> list[tuple[int, int, int]]:
    """Return divisor, priority and mode mask of each quality that this path serves."""
    if len(granted) == 1:
        ((mode, qos),) = granted.items()
        return [(qos.every, qos.priority, 1 << mode)] if qos.redundancy > index else []
    masks: dict[tuple[int, int], int] = {}
    for mode, qos in granted.items():
        if qos.redundancy > index:
            quality = qos.every, qos.priority
            masks[quality] = masks.get(quality, 0) | 1 << mode
    return [(every, priority, mask) for (every, priority), mask in sorted(masks.items())]


def flood_orders(terms: Mapping[int, FloodTerm]) -> tuple[FloodOrder, ...]:
    """Return the flood orders of a variable in all modes, the same for every router."""
    return tuple(
        FloodOrder(level=term.level, modes=modes, every=term.every)
        for term, modes in by_scope(terms)
    )


def variable_order(
    variable: StatusVariable,
    *,
    source: int,
    keeps_newest: bool,
    floods: tuple[FloodOrder, ...] = (),
    takes_delay: bool = False,
) -> VariableOrder:
    return VariableOrder(
        variable_id=variable.variable_id,
        period=variable.period,
        phase_ns=int(variable.is_belated) if variable.period is None else variable.phase_ns,
        source=source,
        is_urgent=variable.is_alert,
        interval_ns_min=variable.interval_ns_min or variable.replay_interval_ns,
        keeps_newest=keeps_newest,
        floods=floods,
        delay_ms=variable.delay_ms if takes_delay and source else 0,
    )


def channel_order(
    channel: EventChannel,
    receiver: RouterReported | BorderChannel,
    *,
    version: int,
    probe_interval_ms: int,
    probes_only_when_idle: bool,
) -> ChannelOrder:
    """Return the order for the sending end of a channel between two routers."""
    is_probed = version >= PROBED_VERSION_MIN
    return ChannelOrder(
        channel_id=channel.channel_id,
        to=channel.to_router,
        host=channel.host_at(receiver.host),
        data_port=receiver.data_port,
        urgent_port=receiver.urgent_port,
        level=channel.level,
        floods=True,
        mtu_bytes=channel.mtu_bytes,
        bandwidth_bytes_per_s=channel.bandwidth_bytes_per_s,
        queue_events_max=channel.queue_events_max,
        datagram_version=version,
        probe_interval_ms=probe_interval_ms if is_probed else 0,
        probes_only_when_idle=is_probed and probes_only_when_idle,
    )


def source_order(
    channel: EventChannel,
    *,
    back_channel: int,
    version: int,
    silent_ms_max: int,
    probe_interval_ms: int = 0,
) -> SourceOrder:
    """Return the order for the receiving end of a channel between two routers.

    An interval of 0 is unknown, or unknown to the router: it is left out.
    """
    is_probed = version >= PROBED_VERSION_MIN
    is_quarter = silence_limit_ms(probe_interval_ms) == silent_ms_max
    return SourceOrder(
        channel_id=channel.channel_id,
        sender=channel.from_router,
        back_channel=back_channel,
        silent_ms_max=silent_ms_max if is_probed else 0,
        probe_interval_ms=probe_interval_ms if is_probed and not is_quarter else 0,
        is_sealed=version == SEALED_VERSION,
    )


def down_order(endpoint: str, attachment: Attachment, *, version: int) -> ChannelOrder | None:
    """Return the order of the channel from an edge to an end-point; None without a receiver."""
    if attachment.data_port == 0:
        return None
    return ChannelOrder(
        channel_id=attachment.down_channel_id,
        to=endpoint,
        host=attachment.host,
        data_port=attachment.data_port,
        urgent_port=attachment.urgent_port,
        datagram_version=version,
        is_endpoint=version == SEALED_VERSION,
    )


def up_order(endpoint: str, attachment: Attachment) -> SourceOrder:
    """Return the order by which an edge accepts and polices events of an end-point."""
    return SourceOrder(
        channel_id=attachment.up_channel_id,
        sender=endpoint,
        is_publisher=True,
        is_sealed=attachment.security == HOP,
    )
