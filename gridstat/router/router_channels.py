"""The event channels of one router: opened on command, closed when no row uses them any more.

A channel whose address cannot be reached now is tried again and again (S0 A19): a table is not
refused because a cable is out. Events for it meanwhile have no output, and count as not due.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.core.rows import ChannelSpec, check_channel
from gridstat.model.errors import LayoutError, LinkDown
from gridstat.router.liveness import NS_PER_MS

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from gridstat.net.command.router_messages import ChannelOrder

DATAGRAM_VERSION_PROBES: Final = 2


class ChannelCore(Protocol):
    """Part of the core that channels need."""

    def open_channel(self, spec: ChannelSpec) -> None: ...
    def close_channel(self, channel_id: int) -> dict[str, int]: ...
    def open_source(
        self, channel_id: int, *, is_publisher: bool = False, back_channel: int = 0
    ) -> None: ...
    def close_source(self, channel_id: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Source:
    """An incoming channel; a publisher's is policed, and a back channel leads to its sender."""

    channel_id: int
    is_publisher: bool = False
    back_channel: int = 0


class RouterChannels:
    """Commanded channels (`specs`); all are open, except those that wait for their address."""

    def __init__(self, core: ChannelCore) -> None:
        self._core = core
        self.specs: dict[int, ChannelSpec] = {}
        self.sources: dict[int, Source] = {}
        self._waiting: set[int] = set()
        self._closing: set[int] = set()

    def is_open(self, channel_id: int) -> bool:
        return channel_id in self.specs and channel_id not in self._waiting

    def commanded_ids(self) -> AbstractSet[int]:
        """Return the channels that the table names: all but those about to close."""
        return self.specs.keys() - self._closing

    def open_ids(self) -> list[int]:
        return sorted(self.specs.keys() - self._waiting)

    def waiting_ids(self) -> list[int]:
        """Return the channels that could not be opened yet."""
        return sorted(self._waiting)

    def open(self, spec: ChannelSpec) -> None:
        """Open a channel; reopen it where its address changes."""
        channel_id = spec.channel_id
        self._closing.discard(channel_id)
        if self.specs.get(channel_id) == spec:
            return
        self._close_in_core(channel_id)
        self.specs[channel_id] = spec
        self._waiting.add(channel_id)
        self._try_open(channel_id)

    def close(self, channel_id: int) -> None:
        """Close a channel at once."""
        self._close_in_core(channel_id)
        self.specs.pop(channel_id, None)
        self._waiting.discard(channel_id)
        self._closing.discard(channel_id)

    def close_later(self, channel_id: int) -> None:
        """Close a channel once no row uses it."""
        if channel_id in self.specs:
            self._closing.add(channel_id)

    def close_unused(self) -> list[int]:
        """Close the channels that no row uses now; return them."""
        closed = sorted(self._closing)
        for channel_id in closed:
            self.close(channel_id)
        return closed

    def retry(self) -> list[int]:
        """Try to open waiting channels again; return those that are open now."""
        return [channel_id for channel_id in self.waiting_ids() if self._try_open(channel_id)]

    def open_source(self, source: Source) -> None:
        """Accept datagrams of a channel; an open one changes without a gap."""
        if self.sources.get(source.channel_id) == source:
            return
        self._core.open_source(
            source.channel_id,
            is_publisher=source.is_publisher,
            back_channel=source.back_channel,
        )
        self.sources[source.channel_id] = source

    def close_source(self, channel_id: int) -> None:
        if self.sources.pop(channel_id, None) is not None:
            self._core.close_source(channel_id)

    def _try_open(self, channel_id: int) -> bool:
        try:
            self._core.open_channel(self.specs[channel_id])
        except LinkDown:
            return False
        except BaseException:
            self.specs.pop(channel_id)
            self._waiting.discard(channel_id)
            raise
        self._waiting.discard(channel_id)
        return True

    def _close_in_core(self, channel_id: int) -> None:
        if self.is_open(channel_id):
            self._core.close_channel(channel_id)


def spec_of(order: ChannelOrder, *, in_memory: bool = False) -> ChannelSpec:
    """Return the core's spec of a commanded channel; raise `LayoutError` for an impossible one.

    In memory a channel has no address, and the owner of the core carries its datagrams.
    """
    can_probe = order.datagram_version >= DATAGRAM_VERSION_PROBES
    for port in (order.data_port, order.urgent_port):
        if not 0 < port < 2**16:
            raise LayoutError(f"channel {order.channel_id} leads to port {port}")
    spec = ChannelSpec(
        channel_id=order.channel_id,
        level=order.level,
        floods=order.floods,
        mtu_bytes=order.mtu_bytes,
        bandwidth_bytes_per_s=order.bandwidth_bytes_per_s,
        queue_events_max=order.queue_events_max,
        address=None if in_memory else (order.host, order.data_port, order.urgent_port),
        datagram_version=order.datagram_version,
        probe_interval_ns=order.probe_interval_ms * NS_PER_MS if can_probe else 0,
        probes_only_when_idle=order.probes_only_when_idle,
    )
    check_channel(spec)
    return spec
