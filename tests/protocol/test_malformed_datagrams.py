"""Bytes that are not ours: dropped by the datagram, counted once, and nothing else suffers."""

from __future__ import annotations

import random

import pytest

from gridstat.core.rows import ChannelSpec, Route, Term
from tests.protocol.grids import (
    HEADER,
    MS,
    NOW_NS,
    PUBLISHER,
    SMALL,
    MakeCore,
    Subject,
    assert_reconciled,
    datagram,
    event,
    periodic,
    told,
)

FAR = 0x7055_0AA3
"""A variable that an accident to the others' bytes does not name."""

GOOD = datagram(PUBLISHER, event(1, NOW_NS), event(2, NOW_NS, options=2))


def listening_core(make_core: MakeCore) -> Subject:
    core = make_core(SMALL)
    core.open_source(PUBLISHER)
    core.open_channel(ChannelSpec(1))
    core.commit([periodic(v, 10, routes=(Route(1, (Term(1),)),)) for v in (1, 2, FAR)])
    return core


def with_byte(octets: bytes, at: int, value: int) -> bytes:
    return octets[:at] + bytes([value]) + octets[at + 1 :]


def with_length(octets: bytes, length: int) -> bytes:
    version, epoch, _, channel_id, counter = HEADER.unpack_from(octets)
    return HEADER.pack(version, epoch, length, channel_id, counter) + octets[HEADER.size :]


WRONG = [
    pytest.param(b"", "short", id="nothing at all"),
    pytest.param(GOOD[:15], "short", id="cut inside the header"),
    pytest.param(with_byte(GOOD, 0, 0), "version", id="version 0"),
    pytest.param(with_byte(GOOD, 0, 4), "version", id="a version that does not exist"),
    pytest.param(with_byte(GOOD, 0, 3), "length", id="a sealed version without a tag"),
    pytest.param(with_byte(GOOD, 1, 1), "epoch", id="encrypted without keys"),
    pytest.param(GOOD[:16], "length", id="only the header arrived"),
    pytest.param(with_length(GOOD, 16), "length", id="no event announced"),
    pytest.param(with_length(GOOD, 39), "length", id="less than an event announced"),
    pytest.param(with_length(GOOD, len(GOOD) + 1), "length", id="more announced than arrived"),
    pytest.param(with_length(GOOD, len(GOOD) - 1), "option", id="options cut off"),
    pytest.param(with_length(GOOD, 16 + 24 + 23), "option", id="second event cut off"),
    pytest.param(with_byte(GOOD, 16 + 12, 255), "option", id="option count beyond the datagram"),
    pytest.param(with_byte(GOOD, 40 + 12, 3), "option", id="one option too many at the end"),
]


@pytest.mark.feature("S0-16")
@pytest.mark.parametrize(("wrong", "reason"), WRONG)
def test_a_malformed_datagram_is_dropped_whole_and_the_next_one_decoded(
    subject: MakeCore, wrong: bytes, reason: str
) -> None:
    core = listening_core(subject)
    core.inject(wrong, now_ns=NOW_NS)
    counters = core.counters()
    assert counters["malformed"] == counters[f"malformed_{reason}"] == counters["in"] == 1
    assert core.take_output(1) == []
    core.inject(GOOD, now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(1, NOW_NS), (2, NOW_NS)]
    assert_reconciled(core, [1])


def test_bytes_behind_the_announced_length_are_padding(subject: MakeCore) -> None:
    core = listening_core(subject)
    core.inject(GOOD + b"\xff" * 100, now_ns=NOW_NS)
    assert told(core.take_output(1)) == [(1, NOW_NS), (2, NOW_NS)]
    assert core.counters()["malformed"] == 0


def mangled(rng: random.Random, created_ns: int) -> bytes:
    """Noise, or a good datagram after an accident."""
    events = [event(rng.randrange(5), created_ns, options=rng.randrange(3)) for _ in range(3)]
    octets = bytearray(datagram(PUBLISHER, *events))
    match rng.randrange(5):
        case 0:
            return rng.randbytes(rng.randrange(2_000))
        case 1:
            return bytes(octets[: rng.randrange(len(octets))])
        case 2:
            for _ in range(rng.randrange(1, 8)):
                octets[rng.randrange(len(octets))] ^= 1 << rng.randrange(8)
        case 3:
            octets[28] = rng.randrange(256)
        case _:
            octets[2:4] = rng.randbytes(2)
    return bytes(octets)


@pytest.mark.feature("S3-20")
def test_ten_thousand_random_datagrams_only_make_counters_rise(subject: MakeCore) -> None:
    core = listening_core(subject)
    rng = random.Random(20)
    for tried in range(1, 10_001):
        now_ns = NOW_NS + tried * 10 * MS
        core.inject(mangled(rng, now_ns), port=rng.randrange(2), now_ns=now_ns)
        if tried % 100 == 0:
            core.take_output(1)
            assert_reconciled(core, [1])
            core.inject(datagram(PUBLISHER, event(FAR, now_ns)), now_ns=now_ns)
            assert told(core.take_output(1)) == [(FAR, now_ns)]
    counters = core.counters()
    assert counters["datagrams_in"] == 10_100
    assert counters["malformed"] > 5_000
    assert min(counters[f"malformed_{why}"] for why in ("short", "version", "length", "option")) > 0
