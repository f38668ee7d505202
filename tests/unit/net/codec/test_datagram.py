"""The datagram's header, its padding, and the agreement on a version."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LayoutError, MalformedVersion, NoCommonVersion
from gridstat.net.codec.datagram import agreed_version, decode_datagram, encode_datagram

EVENT = bytes(range(12)) + bytes(12)
LONGEST_EVENT = bytes(12) + b"\xff" + bytes(6_131)


def test_header_fields_lie_at_their_offsets_with_the_highest_byte_first() -> None:
    raw = encode_datagram(0x01020304, 0x1112131415161718, events=[EVENT, EVENT])
    assert raw[:16].hex(" ") == "01 00 00 40 01 02 03 04 11 12 13 14 15 16 17 18"
    assert raw[16:] == EVENT * 2


def test_padding_is_zeros_that_the_length_does_not_count() -> None:
    raw = encode_datagram(1, 1, events=[EVENT], padded_bytes=100)
    assert raw[40:] == bytes(60)
    assert decode_datagram(raw).length == 40
    assert len(decode_datagram(raw).events) == 1


def test_a_datagram_longer_than_the_padding_asked_for_is_left_alone() -> None:
    assert len(encode_datagram(1, 1, events=[EVENT, EVENT], padded_bytes=40)) == 64


def test_events_of_a_decoded_datagram_are_windows_into_it() -> None:
    raw = bytearray(encode_datagram(1, 1, events=[EVENT]))
    datagram = decode_datagram(raw)
    raw[16] = 0xEE
    assert datagram.events[0].raw[0] == 0xEE


def test_the_largest_event_and_as_many_as_the_length_can_count_fit() -> None:
    raw = encode_datagram(1, 1, events=[LONGEST_EVENT] * 10)
    assert [len(event.raw) for event in decode_datagram(raw).events] == [6_144] * 10


def test_a_datagram_of_version_1_without_events_is_never_written() -> None:
    with pytest.raises(LayoutError, match="0 bytes of events"):
        encode_datagram(1, 1, events=[])


def test_a_datagram_of_version_2_without_events_is_a_probe() -> None:
    probe = decode_datagram(encode_datagram(1, 5, events=[], version=2))
    assert (probe.is_probe, probe.counter, probe.length, probe.version) == (True, 5, 16, 2)
    assert not decode_datagram(encode_datagram(1, 5, events=[EVENT], version=2)).is_probe


def test_a_reader_that_knows_version_1_alone_drops_version_2() -> None:
    raw = encode_datagram(1, 1, events=[EVENT], version=2)
    with pytest.raises(MalformedVersion, match="version 2, known are"):
        decode_datagram(raw, versions={1})


def test_a_version_that_does_not_exist_is_never_written() -> None:
    with pytest.raises(LayoutError, match="datagram version 3"):
        encode_datagram(1, 1, events=[EVENT], version=3)


def test_more_than_the_length_can_count_is_never_written() -> None:
    with pytest.raises(LayoutError, match="in one datagram"):
        encode_datagram(1, 1, events=[LONGEST_EVENT] * 11)


@pytest.mark.parametrize(("channel_id", "counter"), [(-1, 1), (2**32, 1), (1, 0), (1, 2**64)])
def test_a_header_that_the_wire_cannot_hold_is_never_written(channel_id: int, counter: int) -> None:
    with pytest.raises(LayoutError, match=f"channel {channel_id}"):
        encode_datagram(channel_id, counter, events=[EVENT])


def test_two_ends_agree_on_the_highest_version_that_both_know() -> None:
    assert agreed_version({1}) == 1
    assert agreed_version({1, 2}) == 2
    assert agreed_version({1, 2, 9}, ours={1, 2, 3}) == 2


def test_two_ends_without_a_common_version_open_no_channel() -> None:
    with pytest.raises(NoCommonVersion, match=r"they speak \[3, 4\], we speak \[1, 2\]"):
        agreed_version({4, 3})
