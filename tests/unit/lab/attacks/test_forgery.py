"""Datagrams of a stranger: well formed, of every version, and read back by the reference."""

from __future__ import annotations

from gridstat.net.codec.datagram import decode_datagram
from lab.attacks.forgery import (
    HEADER,
    SEALED,
    TAG_BYTES,
    Heading,
    altered,
    event,
    forged,
    heading_of,
    moved,
)

SEEN = Heading(version=SEALED, epoch=255, length=40, channel_id=7, counter=2**64 - 1)


def test_all_forms_continue_the_counter_of_the_channel() -> None:
    made = list(forged(SEEN, [event(12, 1_000, 5)], ahead=3))
    headings = [heading_of(datagram) for datagram in made]
    assert {heading.version for heading in headings if heading} == {1, 2, 3}
    assert {heading.counter for heading in headings if heading} == {2}
    assert {heading.channel_id for heading in headings if heading} == {7}
    assert {heading.epoch for heading in headings if heading and heading.version == SEALED} == {
        255,
        0,
    }


def test_a_forged_plain_datagram_holds_the_event() -> None:
    plain = next(iter(forged(SEEN, [event(12, 1_000, 5)])))
    [found] = decode_datagram(plain).events
    assert (found.variable_id, found.created_ns) == (12, 1_000)


def test_a_sealed_form_has_room_for_its_tag() -> None:
    *_, sealed = forged(SEEN, [event(12, 1_000, 5)])
    assert len(sealed) == HEADER.size + 24 + TAG_BYTES


def test_foreign_bytes_have_no_heading() -> None:
    assert heading_of(b"short") is None
    assert heading_of(bytes(64)) is None


def test_one_bit_or_some_fields_change() -> None:
    datagram = next(iter(forged(SEEN, [event(12, 1_000, 5)])))
    assert altered(datagram, 20, 3)[20] == datagram[20] ^ 8
    other = heading_of(moved(datagram, channel_id=9, counter=4))
    assert other is not None
    assert (other.channel_id, other.counter, other.length) == (9, 4, 40)
