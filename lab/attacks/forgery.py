"""Datagrams that a stranger without keys can make, and what the header of a real one tells."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

HEADER: Final = struct.Struct(">BBHIQ")
"""version, key epoch, length of header and events, channel, counter"""
EVENT: Final = struct.Struct(">QIBBHQ")
"""created_ns, variable, options, flags, sequence, value"""
PLAIN: Final = 1
PROBES: Final = 2
SEALED: Final = 3
TAG_BYTES: Final = 16


@dataclass(frozen=True, slots=True)
class Heading:
    """Fields of a header, which every eavesdropper can read."""

    version: int
    epoch: int
    length: int
    channel_id: int
    counter: int


def heading_of(datagram: bytes) -> Heading | None:
    """Return the header of a datagram; None for bytes that are not one of ours."""
    if len(datagram) < HEADER.size:
        return None
    found = Heading(*HEADER.unpack_from(datagram))
    is_ours = PLAIN <= found.version <= SEALED and HEADER.size <= found.length <= len(datagram)
    return found if is_ours else None


def event(variable_id: int, created_ns: int, value: int, sequence: int = 0) -> bytes:
    return EVENT.pack(created_ns, variable_id, 0, 0, sequence, value)


def forged(seen: Heading, events: Iterable[bytes] = (), *, ahead: int = 1) -> Iterator[bytes]:
    """Yield all forms of a forged datagram: plain of each version, and sealed without the key.

    `seen` is the header of a real datagram of the channel; the counter continues it. Without
    events the datagram is a probe.
    """
    body = b"".join(events)
    length = HEADER.size + len(body)
    counter = (seen.counter + ahead) % 2**64
    for version in (PLAIN, PROBES):
        yield HEADER.pack(version, 0, length, seen.channel_id, counter) + body
    for epoch in sorted({seen.epoch, (seen.epoch + 1) % 256}):
        header = HEADER.pack(SEALED, epoch, length, seen.channel_id, counter)
        # The right events in the clear with a guessed tag, and events that look encrypted.
        yield header + body + os.urandom(TAG_BYTES)
        yield header + os.urandom(len(body) + TAG_BYTES)


def altered(datagram: bytes, at: int, bit: int) -> bytes:
    """Return a datagram with one bit changed."""
    changed = bytearray(datagram)
    changed[at % len(changed)] ^= 1 << bit % 8
    return bytes(changed)


def moved(datagram: bytes, **fields: int) -> bytes:
    """Return a datagram with other fields in its header, say another channel or counter."""
    found = heading_of(datagram)
    assert found is not None
    values = {name: getattr(found, name) for name in Heading.__slots__} | fields
    return HEADER.pack(*(values[name] for name in Heading.__slots__)) + datagram[HEADER.size :]
