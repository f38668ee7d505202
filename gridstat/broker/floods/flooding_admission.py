"""Admission of flooding: the latency limit of channels, and the load of a new channel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.capacity.accounts import HopAccount
from gridstat.broker.capacity.admission import channel_obstacles
from gridstat.broker.capacity.allocation import Refusal
from gridstat.broker.capacity.charges import MODE_SETS_DEFAULT
from gridstat.broker.capacity.stream_costs import StreamCost
from gridstat.model.errors import LatencyNotSatisfiable
from gridstat.model.flooding import FLOOD_CHANNEL_US_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gridstat.model.cloud import EventChannel
    from gridstat.model.status import StatusVariable


US_PER_MS: Final = 1_000


def slow_refusal(channels: Iterable[EventChannel]) -> Refusal | None:
    """Return a refusal if a channel is so slow that copies could outlive duplicate detection."""
    slowest = max(channels, key=lambda channel: channel.latency_us, default=None)
    if slowest is None or slowest.latency_us <= FLOOD_CHANNEL_US_MAX:
        return None
    most = f"{FLOOD_CHANNEL_US_MAX // US_PER_MS} ms"
    return Refusal.of(
        LatencyNotSatisfiable,
        f"channel {slowest.label} takes {slowest.latency_us / US_PER_MS:g} ms, and flooding uses "
        f"no channel that takes more than {most}: a copy could return after routers have "
        "forgotten its event",
        hint="flood at a broker whose scope excludes the channel, or declare a shorter latency",
        bottleneck=f"channel {slowest.label}",
        shortfall=f"{slowest.latency_us - FLOOD_CHANNEL_US_MAX} µs",
    )


def flooding_refusal(
    channel: EventChannel,
    taken: Iterable[tuple[StatusVariable, Mapping[int, int]]],
    *,
    is_ipv6: bool,
) -> Refusal | None:
    """Return why a new channel cannot carry all flooded variables from its start, or None.

    `is_ipv6` is true if the receiving router's address is one of IPv6, with its longer headers.
    """
    hop = HopAccount((), MODE_SETS_DEFAULT, channel)
    hop.set_ip_version(is_ipv6=is_ipv6)
    slow = slow_refusal((channel,))
    for variable, everys in taken:
        if slow is not None:
            return slow
        hop.add(StreamCost(variable), everys)
    found = list(channel_obstacles(hop, channel.channel_id))
    return found[0].refusal() if found else None
