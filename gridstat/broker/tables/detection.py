"""Detection time of channel failures, as contracts state it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tables.router_orders import PROBED_VERSION_MIN
from gridstat.model.channel_security import agreed_version
from gridstat.model.wire_law import is_ipv6_address

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.allocation import AllocatedPath
    from gridstat.broker.records.registry import Registry
    from gridstat.model.cloud import EventChannel
    from gridstat.model.probe_law import ProbeSettings


class Detection:
    """Silence limits of the channels of one cloud, as ordered at their receivers."""

    def __init__(self, registry: Registry, probes: ProbeSettings) -> None:
        self._registry = registry
        self._probes = probes

    def on_paths(self, paths: Iterable[AllocatedPath]) -> int | None:
        """Return the longest silence limit over all channels of some paths, in ms."""
        return self.on_channels(number for path in paths for number in path.channel_ids)

    def on_channels(self, channel_ids: Iterable[int]) -> int | None:
        """Return the longest limit of some channels: 0 without any, None if one is not probed."""
        longest_ms = 0
        for number in channel_ids:
            channel = self._registry.channels.get(number)
            if channel is None or not self._is_probed(channel):
                return None
            receiver = self._registry.reports[channel.to_router]
            limit_ms = self._probes.silent_ms_max_of(
                channel.bandwidth_bytes_per_s, is_ipv6=is_ipv6_address(receiver.host)
            )
            longest_ms = max(longest_ms, limit_ms)
        return longest_ms

    def _is_probed(self, channel: EventChannel) -> bool:
        reports = self._registry.reports
        sender, receiver = reports.get(channel.from_router), reports.get(channel.to_router)
        if sender is None or receiver is None:
            return False
        version = agreed_version(
            channel.security, sender.datagram_versions, receiver.datagram_versions
        )
        return version >= PROBED_VERSION_MIN


def longest(limits_ms: Iterable[int | None]) -> int | None:
    """Return the longest of some silence limits; None (unknown) if any of them is None."""
    found = list(limits_ms)
    known = [limit_ms for limit_ms in found if limit_ms is not None]
    return max(known, default=0) if len(known) == len(found) else None
