"""Decoder of datagrams for the reference core."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gridstat.core.key_settings import TAG_BYTES
from gridstat.core.reference_egress import HEADER
from gridstat.core.rows import DATAGRAM_VERSION_SEALED

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


@dataclass(frozen=True, slots=True)
class Sealed:
    """A sealed datagram with a good header; nothing of it can be trusted before it is opened."""

    channel_id: int


def read_datagram(datagram: bytes, versions_max: int) -> Received | Sealed | str:
    """Return the datagram, checked as far as it can be read, or the name of the counter of its
    fault."""
    if len(datagram) < HEADER.size:
        return "malformed_short"
    version, key_epoch, length, _, _ = HEADER.unpack_from(datagram)
    if not 1 <= version <= versions_max:
        return "malformed_version"
    if version == DATAGRAM_VERSION_SEALED:
        return _read_sealed(datagram)
    if key_epoch != 0:
        return "malformed_epoch"
    is_probe = length == HEADER.size and version >= VERSION_WITH_PROBES
    if (length < HEADER.size + EVENT.size and not is_probe) or length > len(datagram):
        return "malformed_length"
    return read_opened(datagram)


def _read_sealed(datagram: bytes) -> Sealed | str:
    _, _, length, channel_id, _ = HEADER.unpack_from(datagram)
    is_probe = length == HEADER.size
    has_room = is_probe or length >= HEADER.size + EVENT.size
    is_whole = length + TAG_BYTES <= len(datagram)
    return Sealed(channel_id) if has_room and is_whole else "malformed_length"


def read_opened(datagram: bytes) -> Received | str:
    """Return a plain or opened datagram, or the name of the counter of its fault."""
    _, _, length, channel_id, counter = HEADER.unpack_from(datagram)
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
