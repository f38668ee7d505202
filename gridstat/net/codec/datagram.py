"""The datagram around the events: one header, events back to back, padding.

The version rule: the version is agreed when a channel is set up, the highest that both ends know,
and the sender speaks it. A reader takes every version that it knows and never guesses: any other
one is dropped whole and counted, because even the meaning of the length may differ. Version 3, the
sealed one, is read and written by `gridstat/core` alone, which holds the keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import (
    LayoutError,
    MalformedEpoch,
    MalformedLength,
    MalformedShort,
    MalformedVersion,
    NoCommonVersion,
)
from gridstat.model.status import U32_MAX, U64_MAX
from gridstat.net.codec.event import EVENT_BYTES, EventView, walk_events

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

# A datagram, big-endian:
#
#   offset  size  field
#        0     1  version     1, or 2 in which a header alone is a probe
#        1     1  key_epoch   0: not encrypted
#        2     2  length      header and events, without padding
#        4     4  channel_id
#        8     8  counter     counts the datagrams of the channel, from 1
#       16     …  events      back to back, at least one; none in a probe
#   length     …  padding     zeros when written, ignored when read; GSO wants equal segments
_HEADER: Final = Struct(">BBHIQ")

VERSION_PLAIN: Final = 1
VERSION_WITH_PROBES: Final = 2
VERSIONS: Final = frozenset({VERSION_PLAIN, VERSION_WITH_PROBES})
HEADER_BYTES: Final = _HEADER.size
LENGTH_MAX: Final = 2**16 - 1


@dataclass(frozen=True, slots=True)
class Datagram:
    """A checked datagram; the events are windows into its bytes."""

    channel_id: int
    counter: int
    length: int
    events: tuple[EventView, ...]
    version: int = VERSION_PLAIN

    @property
    def is_probe(self) -> bool:
        """True for a datagram without events, which only shows that the channel works."""
        return not self.events


def decode_datagram(
    raw: bytes | bytearray | memoryview, versions: Collection[int] = VERSIONS
) -> Datagram:
    """Decode header and events; raise `Malformed` if any part is wrong or of another version.

    The order of the checks is part of the format: each bad datagram is counted once, under the
    first reason that holds, by the compiled core and here alike.
    """
    received = len(raw)
    if received < HEADER_BYTES:
        raise MalformedShort(f"{received} bytes, a header has {HEADER_BYTES}")
    version, key_epoch, length, channel_id, counter = _HEADER.unpack_from(raw)
    if version not in versions:
        raise MalformedVersion(f"version {version}, known are {sorted(versions)}")
    if key_epoch != 0:
        raise MalformedEpoch(f"key epoch {key_epoch} on a channel without encryption")
    if not _length_min(version, length) <= length <= received:
        raise MalformedLength(f"length {length} of {received} bytes received")
    events = tuple(walk_events(memoryview(raw)[HEADER_BYTES:length]))
    return Datagram(channel_id, counter, length, events, version)


def encode_datagram(
    channel_id: int,
    counter: int,
    *,
    events: Iterable[bytes | memoryview],
    padded_bytes: int = 0,
    version: int = VERSION_PLAIN,
) -> bytes:
    """Encode events as one datagram, filled with zeros up to `padded_bytes` if that is more.

    A datagram of version 2 may have no events: `encode_datagram(3, 1, events=(), version=2)` is a
    probe.
    """
    body = b"".join(events)
    length = HEADER_BYTES + len(body)
    if version not in VERSIONS:
        raise LayoutError(f"datagram version {version}", hint=f"there are {sorted(VERSIONS)}")
    if not _length_min(version, length) <= length <= LENGTH_MAX:
        raise LayoutError(
            f"{len(body)} bytes of events in one datagram",
            hint=f"a datagram holds at least one event and at most {LENGTH_MAX} bytes",
        )
    if not 0 <= channel_id <= U32_MAX or not 1 <= counter <= U64_MAX:
        raise LayoutError(
            f"channel {channel_id}, counter {counter}",
            hint="a channel has 32 bits; a counter has 64 and begins at 1",
        )
    header = _HEADER.pack(version, 0, length, channel_id, counter)
    return (header + body).ljust(padded_bytes, b"\0")


def _length_min(version: int, length: int) -> int:
    """Return the least valid length: a header alone for a probe, else header and one event."""
    is_probe = version >= VERSION_WITH_PROBES and length == HEADER_BYTES
    return HEADER_BYTES if is_probe else HEADER_BYTES + EVENT_BYTES


def agreed_version(theirs: Collection[int], ours: Collection[int] = VERSIONS) -> int:
    """Return the version for a new channel: the highest that both ends know."""
    common = set(theirs) & set(ours)
    if not common:
        raise NoCommonVersion(f"they speak {sorted(theirs)}, we speak {sorted(ours)}")
    return max(common)
