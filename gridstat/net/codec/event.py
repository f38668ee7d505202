"""A status event as bytes (S0 §6.1, its three padding bytes put to use).

The compiled core reads the same bytes in `core/event.h`; `tests/golden/event.toml` binds the two.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from gridstat.model.errors import MalformedOption
from gridstat.model.identifiers import VariableId
from gridstat.model.status import OPTION_BYTES, VALUE_BYTES, EventFlag, StatusEvent, TimeQuality

if TYPE_CHECKING:
    from collections.abc import Iterator

# An event, big-endian:
#
#   offset  size  field
#        0     8  created_ns    POSIX nanoseconds
#        8     4  variable_id
#       12     1  option_count  n, the number of 24-byte options that follow
#       13     1  flags         see below
#       14     2  sequence      counts a variable's events, modulo 65,536
#       16     8  value         a built-in value, or the first bytes of a record
#       24  24*n  options       rest of the record, derived values, zeros up to a whole option
#
#   flags   7 6        5       4         3     2            1 0
#           reserved   cached  replayed  test  substituted  time quality
#
# Reserved bits are written as 0 and ignored when read. Routers pass all of it on untouched.
_HEAD: Final = Struct(">QIBBH")
_OPTION_COUNT_AT: Final = 12
_TIME_QUALITY_BITS: Final = 0b11
_FLAG_BITS: Final = 0b111100

HEAD_BYTES: Final = _HEAD.size
EVENT_BYTES: Final = HEAD_BYTES + VALUE_BYTES
EVENT_BYTES_MAX: Final = EVENT_BYTES + 255 * OPTION_BYTES


class EventView(NamedTuple):
    """One event in place; `payload` and `raw` are windows into the datagram, not copies."""

    created_ns: int
    variable_id: int
    option_count: int
    flags: int
    sequence: int
    payload: memoryview
    raw: memoryview


def flag_byte(
    time_quality: TimeQuality = TimeQuality.GOOD, flags: EventFlag = EventFlag.NONE
) -> int:
    """Return the byte that time quality and flags share."""
    return int(time_quality) | (int(flags) & _FLAG_BITS)


def encode_event(event: StatusEvent) -> bytes:
    """Encode an event."""
    head = _HEAD.pack(
        event.created_ns,
        event.variable_id,
        event.option_count,
        flag_byte(event.time_quality, event.flags),
        event.sequence,
    )
    return head + event.payload


def decode_event(raw: bytes | bytearray | memoryview) -> StatusEvent:
    """Decode exactly one event, copied out of the bytes."""
    views = tuple(walk_events(raw))
    if len(views) != 1:
        raise MalformedOption(f"{len(raw)} bytes are {len(views)} events, not one")
    return status_event(views[0])


def status_event(view: EventView) -> StatusEvent:
    """Return a copy of the event, independent of its datagram."""
    return StatusEvent(
        created_ns=view.created_ns,
        variable_id=VariableId(view.variable_id),
        payload=bytes(view.payload),
        sequence=view.sequence,
        time_quality=TimeQuality(view.flags & _TIME_QUALITY_BITS),
        flags=EventFlag(view.flags & _FLAG_BITS),
    )


def walk_events(raw: bytes | bytearray | memoryview) -> Iterator[EventView]:
    """Yield one event after another without copying; raise if one does not fit into the rest.

    A wrong option count misaligns everything behind it (S0 §10.2.1), so a caller must finish the
    walk before it uses any of the events.
    """
    window = memoryview(raw)
    total = len(window)
    at = 0
    while at < total:
        if total - at < EVENT_BYTES:
            raise MalformedOption(f"{total - at} bytes are left, an event has {EVENT_BYTES}")
        end = at + EVENT_BYTES + OPTION_BYTES * window[at + _OPTION_COUNT_AT]
        if end > total:
            raise MalformedOption(f"an event of {end - at} bytes begins {total - at} from the end")
        created_ns, variable_id, option_count, flags, sequence = _HEAD.unpack_from(window, at)
        yield EventView(
            created_ns=created_ns,
            variable_id=variable_id,
            option_count=option_count,
            flags=flags,
            sequence=sequence,
            payload=window[at + HEAD_BYTES : end],
            raw=window[at:end],
        )
        at = end
