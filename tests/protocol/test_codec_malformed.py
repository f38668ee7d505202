"""Datagrams of senders that lie or stumble; each test says what the sender did wrong.

Whatever it was, the datagram is dropped whole for one reason, and the next good one is read.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.model.errors import Malformed
from gridstat.net.codec.datagram import decode_datagram, encode_datagram

VERSION_AT = 0
KEY_EPOCH_AT = 1
LENGTH_AT = 2
OPTION_COUNT_AT = 16 + 12
EVENT = bytes(24)
EVENT_WITH_OPTION = bytes(12) + b"\x01" + bytes(35)
GOOD = encode_datagram(3, 1, events=[EVENT, EVENT_WITH_OPTION, EVENT])

REASONS = ("short", "version", "epoch", "length", "option")

pytestmark = pytest.mark.feature("S0-16")


def altered(at: int, value: int, raw: bytes = GOOD) -> bytes:
    return raw[:at] + bytes([value]) + raw[at + 1 :]


def with_length(length: int, raw: bytes = GOOD) -> bytes:
    return raw[:LENGTH_AT] + length.to_bytes(2, "big") + raw[LENGTH_AT + 2 :]


def reason_of(raw: bytes | bytearray) -> str:
    """Return why the datagram is dropped; "" if it is not."""
    try:
        decode_datagram(raw)
    except Malformed as complaint:
        return complaint.reason
    return ""


@pytest.mark.parametrize("size", range(16))
def test_a_datagram_cut_inside_its_header_is_short(size: int) -> None:
    assert reason_of(GOOD[:size]) == "short"


@pytest.mark.parametrize("version", [0, 3, 4, 127, 255])
def test_a_sender_that_speaks_a_version_nobody_agreed_on_is_dropped(version: int) -> None:
    assert reason_of(altered(VERSION_AT, version)) == "version"


def test_a_newer_version_is_not_judged_by_fields_that_it_may_have_moved() -> None:
    assert reason_of(altered(VERSION_AT, 3, with_length(0, altered(KEY_EPOCH_AT, 9)))) == "version"


def test_an_encrypted_datagram_on_a_channel_without_keys_is_dropped() -> None:
    assert reason_of(altered(KEY_EPOCH_AT, 1)) == "epoch"
    assert reason_of(with_length(0, altered(KEY_EPOCH_AT, 1))) == "epoch"


@pytest.mark.parametrize("length", [0, 1, 15, 16, 17, 39])
def test_a_length_without_room_for_an_event_is_dropped(length: int) -> None:
    assert reason_of(with_length(length)) == "length"


@pytest.mark.parametrize("length", [len(GOOD) + 1, 40_000, 65_535])
def test_a_length_beyond_the_bytes_that_came_is_dropped(length: int) -> None:
    assert reason_of(with_length(length)) == "length"


@pytest.mark.parametrize("size", range(16, len(GOOD)))
def test_a_datagram_cut_on_its_way_is_dropped_whole(size: int) -> None:
    assert reason_of(GOOD[:size]) == "length"


def test_an_option_length_beyond_the_datagram_drops_only_that_datagram() -> None:
    assert reason_of(altered(OPTION_COUNT_AT, 255)) == "option"
    assert len(decode_datagram(GOOD).events) == 3


def test_a_last_event_with_one_option_too_many_takes_the_good_ones_with_it() -> None:
    last_option_count_at = len(GOOD) - 24 + 12
    assert reason_of(altered(last_option_count_at, 1)) == "option"


def test_options_that_would_reach_into_the_padding_are_dropped() -> None:
    padded = altered(OPTION_COUNT_AT, 255, GOOD) + bytes(7_000)
    assert reason_of(padded) == "option"


@pytest.mark.parametrize("extra", [1, 23])
def test_bytes_after_the_last_event_that_the_length_counts_are_dropped(extra: int) -> None:
    assert reason_of(with_length(len(GOOD) + extra, GOOD + bytes(extra))) == "option"


def test_an_option_count_one_too_small_shifts_the_walk_and_is_never_read_past_the_end() -> None:
    # The option is then taken for an event; its zeros are well-formed, so the walk ends in step.
    second_option_count_at = 16 + 24 + 12
    datagram = decode_datagram(altered(second_option_count_at, 0))
    assert sum(len(event.raw) for event in datagram.events) == len(GOOD) - 16


@given(st.binary(max_size=200))
def test_noise_is_either_well_formed_to_its_last_byte_or_malformed_for_one_reason(
    noise: bytes,
) -> None:
    if (reason := reason_of(noise)) == "":
        datagram = decode_datagram(noise)
        assert sum(len(event.raw) for event in datagram.events) == datagram.length - 16
    else:
        assert reason in REASONS
    assert len(decode_datagram(GOOD).events) == 3


def test_damaged_datagrams_are_all_accounted_for_and_the_next_good_one_is_read() -> None:
    random = Random(16)
    outcomes: Counter[str] = Counter()
    tried = 10_000
    for _ in range(tried):
        raw = bytearray(GOOD)
        for _ in range(random.randint(1, 4)):
            raw[random.randrange(len(raw))] = random.randrange(256)
        outcomes[reason_of(raw[: random.randint(0, 2 * len(raw))]) or "accepted"] += 1
        assert len(decode_datagram(GOOD).events) == 3
    assert outcomes.total() == tried
    assert set(outcomes) == {"accepted", *REASONS}
