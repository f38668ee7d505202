"""Orders for both ends of every channel, derived from the topology and the routers' reports.

A channel is ordered once both ends have reported where they listen, and share a version of the
datagram; a channel that is to be sealed, once both ends can seal. When a router returns on other
ports, the channels of its neighbours are ordered anew.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from gridstat.broker.tables.router_orders import (
    channel_order,
    down_order,
    source_order,
    up_order,
)
from gridstat.model.channel_security import HOP, agreed_version, unsealed_reason
from gridstat.model.wire_law import is_ipv6_address

if TYPE_CHECKING:
    from gridstat.broker.records.registry import Attachment, Registry
    from gridstat.broker.tables.router_tables import RouterTables
    from gridstat.model.cloud import EventChannel
    from gridstat.model.probe_law import ProbeSettings
    from gridstat.net.command.tree_messages import BorderChannel


def may_open(registry: Registry, attachment: Attachment) -> bool:
    """Return whether an edge still agrees with an end-point's attachment on sealed channels."""
    report = registry.reports.get(attachment.edge)
    if report is None:
        return attachment.security != HOP
    if report.endpoint_security != attachment.security:
        return False
    versions = report.datagram_versions, attachment.datagram_versions
    return attachment.security != HOP or bool(agreed_version(HOP, *versions))


class ChannelPlan:
    """Writer of the channel orders in the tables; they follow from the registry alone."""

    def __init__(self, registry: Registry, tables: RouterTables, probes: ProbeSettings) -> None:
        self._registry = registry
        self._tables = tables
        self._probes = probes

    def version(self, channel: EventChannel) -> int:
        """Return the version agreed for a channel; 0 if an end is unknown or they share none."""
        sender = self._registry.reports.get(channel.from_router)
        receiver = self._registry.reports.get(channel.to_router)
        if sender is None or receiver is None:
            return 0
        return agreed_version(
            channel.security, sender.datagram_versions, receiver.datagram_versions
        )

    def closed_reason(self, channel: EventChannel) -> str:
        """Return why a channel of two routers that have reported stays closed; empty if open."""
        ends = {
            name: self._registry.reports[name].datagram_versions
            for name in (channel.from_router, channel.to_router)
            if name in self._registry.reports
        }
        if len(ends) < len((channel.from_router, channel.to_router)) or self.version(channel):
            return ""
        if channel.is_sealed:
            return unsealed_reason(channel.label, ends)
        return f"the ends of channel {channel.label} share no version of the datagram"

    def refresh_router(self, name: str) -> None:
        """Order all channels of a router that has reported, also those of its end-points."""
        for channel_id in sorted(self._registry.channels_of.get(name, ())):
            self.refresh(self._registry.channels[channel_id])
        for endpoint in sorted(self._registry.attached_to.get(name, ())):
            attachment = self._registry.endpoints[endpoint].attachments[name]
            self.open_attachment(endpoint, attachment)
        for border in self._registry.tree.borders.values():
            if name in (border.channel.from_router, border.channel.to_router):
                self.open_border(border)

    def refresh_all(self) -> None:
        """Order all channels anew with another level, since the cloud's depth has changed."""
        for _, channel in sorted(self._registry.channels.items()):
            self.refresh(channel)

    def refresh(self, channel: EventChannel) -> None:
        version = self.version(channel)
        if self._registry.tree.depth is not None:
            channel = replace(channel, level=self._registry.tree.depth)
        if channel.channel_id not in self._registry.channels:
            self.close(channel)
            return
        if version == 0:
            self._tables.withhold_channel(channel.from_router, channel.channel_id)
            self._tables.remove_source(channel.to_router, channel.channel_id)
            return
        sender, receiver = (
            self._registry.reports[end] for end in (channel.from_router, channel.to_router)
        )
        bandwidth = channel.bandwidth_bytes_per_s
        is_ipv6 = is_ipv6_address(channel.host_at(receiver.host))
        probe_interval_ms = self._probes.interval_ms_of(bandwidth, is_ipv6=is_ipv6)
        self._tables.put_channel(
            channel.from_router,
            channel_order(
                channel,
                receiver,
                version=version,
                probes_only_when_idle=sender.counts_data_as_life and receiver.counts_data_as_life,
                probe_interval_ms=probe_interval_ms,
            ),
        )
        self._tables.put_source(
            channel.to_router,
            source_order(
                channel,
                back_channel=self._registry.channel_on.get(channel.back_way, 0),
                version=version,
                silent_ms_max=self._probes.silent_ms_max_of(bandwidth, is_ipv6=is_ipv6),
                probe_interval_ms=probe_interval_ms if receiver.takes_probe_interval else 0,
            ),
        )

    def refresh_pair(self, channel: EventChannel) -> None:
        """Order an added or removed channel, and the reverse one that names it back channel."""
        self.refresh(channel)
        back = self._registry.channel_on.get(channel.back_way)
        if back is not None:
            self.refresh(self._registry.channels[back])

    def close(self, channel: EventChannel) -> None:
        self._tables.remove_channel(channel.from_router, channel.channel_id)
        self._tables.remove_source(channel.to_router, channel.channel_id)

    # Channels between clouds, with one end in this cloud.

    def open_border(self, border: BorderChannel) -> None:
        channel, version = border.channel, border.datagram_version
        bandwidth, probes = channel.bandwidth_bytes_per_s, self._probes.between_clouds()
        if channel.from_router in self._registry.routers:
            is_ipv6 = is_ipv6_address(channel.host_at(border.host))
            probe_interval_ms = probes.interval_ms_of(bandwidth, is_ipv6=is_ipv6)
            order = channel_order(
                channel,
                border,
                version=version,
                probe_interval_ms=probe_interval_ms,
                probes_only_when_idle=border.probes_only_when_idle,
            )
            self._tables.put_channel(channel.from_router, order)
        if channel.to_router in self._registry.routers:
            # `border.host` is the sender's address; the channel leads to our own.
            report = self._registry.reports.get(channel.to_router)
            is_ipv6 = report is not None and is_ipv6_address(channel.host_at(report.host))
            silent_ms_max = probes.silent_ms_max_of(bandwidth, is_ipv6=is_ipv6)
            order_in = source_order(
                channel,
                back_channel=border.back_channel,
                version=version,
                silent_ms_max=max(silent_ms_max, border.silent_ms_max),
            )
            self._tables.put_source(channel.to_router, order_in)

    def close_border(self, border: BorderChannel) -> None:
        channel, routers = border.channel, self._registry.routers
        if channel.from_router in routers:
            self._tables.remove_channel(channel.from_router, channel.channel_id)
        if channel.to_router in routers:
            self._tables.remove_source(channel.to_router, channel.channel_id)

    def attachment_version(
        self, edge: str, datagram_versions: tuple[int, ...], security: str
    ) -> int:
        """Return the version agreed between an edge and an end-point, or 0."""
        report = self._registry.reports.get(edge)
        if report is None:
            return 0
        return agreed_version(security, report.datagram_versions, datagram_versions)

    def open_attachment(self, endpoint: str, attachment: Attachment) -> None:
        version = self.attachment_version(
            attachment.edge, attachment.datagram_versions, attachment.security
        )
        if not may_open(self._registry, attachment):
            # The edge cannot seal now, or its file says otherwise; the end-point must attach anew.
            # Until it is gone its contracts still have paths to it.
            self._tables.withhold_channel(attachment.edge, attachment.down_channel_id)
            self._tables.remove_source(attachment.edge, attachment.up_channel_id)
            return
        down = down_order(endpoint, attachment, version=max(1, version))
        if down is not None:
            self._tables.put_channel(attachment.edge, down)
        self._tables.put_source(attachment.edge, up_order(endpoint, attachment))

    def close_attachment(self, attachment: Attachment) -> None:
        self._tables.remove_channel(attachment.edge, attachment.down_channel_id)
        self._tables.remove_source(attachment.edge, attachment.up_channel_id)
