"""What a contract's parts have been promised, held against its bound once its paths are joined.

A child joins whichever entry to whichever exit, so a path may consist of parts that were divided
for two different ways. Shares of channels that are more than they need now are then cut.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import structs

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.capacity.negotiation import Quality
    from gridstat.broker.tree.latency_shares import Division
    from gridstat.broker.tree.owned_channels import OwnChannels
    from gridstat.broker.tree.tree_operations import Way


def kept_within(
    division: Division, ways: Iterable[Way], quality: Quality, channels: OwnChannels
) -> tuple[Way, ...] | None:
    """The ways with shares whose sums keep the bounds; None if there are none."""
    found = []
    for way in ways:
        kept = _cut(way, _excess_us(division, way, quality), channels)
        if kept is None:
            return None
        found.append(kept)
    return tuple(found)


def _excess_us(division: Division, way: Way, quality: Quality) -> int:
    """By how much all that is promised on a way exceeds what it may take."""
    parts = [division.parts[child] for child in _children(division, way)]
    return max(
        sum(part.granted[mode].latency_us for part in parts) + sum(way.shares_us) - qos.latency_us
        for mode, qos in quality.items()
    )


def _children(division: Division, way: Way) -> list[str]:
    """Those on a way, in its order: who is left by its first channel, or by its gate, and so on."""
    ends = {
        (gate.channel_id, is_entry): child
        for child, part in division.parts.items()
        for gates, is_entry in ((part.entries, True), (part.exits, False))
        for gate in gates
    }
    if not way.channel_ids:
        return [ends[way.entry, True] if way.entry else ends[way.exit, False]]
    return [
        ends[way.channel_ids[0], False],
        *(ends[number, True] for number in way.channel_ids),
    ]


def _cut(way: Way, excess_us: int, channels: OwnChannels) -> Way | None:
    if excess_us <= 0:
        return way
    spare_us = [
        max(0, share_us - channels.latency_us(number))
        for number, share_us in zip(way.channel_ids, way.shares_us, strict=True)
    ]
    total_us = sum(spare_us)
    if total_us < excess_us:
        return None
    shares_us = tuple(
        share_us - -(-excess_us * one_us // total_us)
        for share_us, one_us in zip(way.shares_us, spare_us, strict=True)
    )
    return structs.replace(way, shares_us=shares_us)
