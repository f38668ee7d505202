"""Events as bytes: field by field, and event after event."""

from __future__ import annotations

import pytest

from gridstat.model.errors import MalformedOption
from gridstat.model.identifiers import VariableId
from gridstat.model.status import EventFlag, StatusEvent, TimeQuality
from gridstat.net.codec.event import (
    EVENT_BYTES,
    EVENT_BYTES_MAX,
    decode_event,
    encode_event,
    flag_byte,
    status_event,
    walk_events,
)

EVENT = StatusEvent(
    created_ns=0x0102030405060708,
    variable_id=VariableId(0x11121314),
    payload=bytes(range(0x80, 0xA0)),
    sequence=0x2122,
    time_quality=TimeQuality.DEGRADED,
    flags=EventFlag.TEST | EventFlag.CACHED,
)


@pytest.mark.feature("S0-14", "S3-18")
def test_fields_lie_at_their_offsets_with_the_highest_byte_first() -> None:
    raw = encode_event(EVENT)
    assert raw[0:8] == b"\x01\x02\x03\x04\x05\x06\x07\x08"
    assert raw[8:12] == b"\x11\x12\x13\x14"
    assert raw[12] == 1
    assert raw[13] == 0b0010_1001
    assert raw[14:16] == b"\x21\x22"
    assert raw[16:48] == EVENT.payload
    assert len(raw) == 48


@pytest.mark.feature("S0-14")
def test_an_event_without_options_has_24_bytes_and_the_largest_6144() -> None:
    assert len(encode_event(StatusEvent(0, VariableId(0), bytes(8)))) == EVENT_BYTES == 24
    assert len(encode_event(StatusEvent(0, VariableId(0), bytes(6_128)))) == EVENT_BYTES_MAX
    assert EVENT_BYTES_MAX == 6_144


def test_a_walk_yields_windows_and_copies_nothing() -> None:
    raw = bytearray(encode_event(EVENT) * 3)
    views = list(walk_events(raw))
    assert [len(view.raw) for view in views] == [48, 48, 48]
    raw[48 + 16] = 0xEE
    assert views[1].payload[0] == 0xEE
    assert views[1].raw[16] == 0xEE


def test_a_copied_event_outlives_the_change_of_its_buffer() -> None:
    raw = bytearray(encode_event(EVENT))
    (view,) = walk_events(raw)
    copied = status_event(view)
    raw[:] = bytes(48)
    assert copied == EVENT


def test_walking_no_bytes_finds_no_events() -> None:
    assert list(walk_events(b"")) == []


@pytest.mark.parametrize("raw", [b"", bytes(23), bytes(25), bytes(48)])
def test_bytes_that_are_not_exactly_one_event_are_malformed(raw: bytes) -> None:
    with pytest.raises(MalformedOption):
        decode_event(raw)


@pytest.mark.parametrize("quality", TimeQuality)
@pytest.mark.parametrize("flags", [EventFlag.NONE, EventFlag.SUBSTITUTED, ~EventFlag.NONE])
def test_time_quality_and_flags_share_a_byte_without_touching(
    quality: TimeQuality, flags: EventFlag
) -> None:
    together = flag_byte(quality, flags)
    assert together & 0b11 == quality
    assert together & 0b1100_0000 == 0
    event = decode_event(encode_event(StatusEvent(0, VariableId(0), bytes(8), 0, quality, flags)))
    assert (event.time_quality, event.flags) == (quality, flags)


def test_a_flag_that_is_none_of_ours_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="64"):
        EventFlag(64)
    with pytest.raises(ValueError, match="invalid"):
        EventFlag(int(TimeQuality.BAD))


def test_reserved_flag_bits_are_ignored_by_a_reader() -> None:
    raw = bytearray(encode_event(EVENT))
    raw[13] |= 0b1100_0000
    assert decode_event(raw) == EVENT
