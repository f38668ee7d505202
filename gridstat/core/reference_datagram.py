"""Decoder of datagrams for the reference core."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gridstat.core.reference_egress import HEADER

EVENT = struct.Struct(">QIBBH8s")
"""created_ns, variable_id, option_count, flags, sequence, value; options follow, 24 bytes each."""

OPTION_BYTES = 24
VERSION_WITH_PROBES = 2


@dataclass(frozen=True, slots=True)
class Event:
    """One event as it arrived: its bytes and the fields that the path looks at."""

    octets: bytes
    created_ns: int
    variable_id: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Received:
    """A good datagram; without events it is a probe."""

    channel_id: int
    counter: int
    events: list[Event]


def read_datagram(datagram: bytes, versions_max: int) -> Received | str:
    """Return the datagram, checked completely, or the name of the counter of its fault."""
    if len(datagram) < HEADER.size:
        return "malformed_short"
    version, key_epoch, length, channel_id, counter = HEADER.unpack_from(datagram)
    if not 1 <= version <= versions_max:
        return "malformed_version"
    if key_epoch != 0:
        return "malformed_epoch"
    is_probe = length == HEADER.size and version >= VERSION_WITH_PROBES
    if (length < HEADER.size + EVENT.size and not is_probe) or length > len(datagram):
        return "malformed_length"
    events = _events_of(datagram[HEADER.size : length])
    return "malformed_option" if events is None else Received(channel_id, counter, events)


def _events_of(octets: bytes) -> list[Event] | None:
    """Return the consecutive events of a datagram, or None when they do not fill it exactly."""
    events = []
    at = 0
    while at < len(octets):
        if len(octets) - at < EVENT.size:
            return None
        created_ns, variable_id, option_count, _, sequence, _ = EVENT.unpack_from(octets, at)
        end = at + EVENT.size + OPTION_BYTES * option_count
        if end > len(octets):
            return None
        events.append(Event(octets[at:end], created_ns, variable_id, sequence))
        at = end
    return events
