"""Sealed datagrams: every backend of this machine against the reference, and against forgers."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.core._core import ReplayWindow, SealKey, seal_backends
from gridstat.core.reference_seal import ReferenceReplayWindow, ReferenceSealKey
from gridstat.model.errors import LayoutError, UnknownName
from tests.golden.load import load_golden, octets

if TYPE_CHECKING:
    from collections.abc import Callable

KEY, SALT = bytes(range(16)), b"salt"
U64_MAX = 2**64 - 1


class Sealing(Protocol):
    def seal(self, datagram: bytes, port: int = 0) -> bytes: ...

    def unseal(self, datagram: bytes, port: int = 0) -> bytes | None: ...


SUBJECTS: dict[str, Callable[[bytes, bytes], Sealing]] = {"reference": ReferenceSealKey} | {
    name: lambda key, salt, name=name: SealKey(key, salt, name)  # type: ignore[misc]
    for name in seal_backends()
}
subjects = pytest.mark.parametrize("make", SUBJECTS.values(), ids=SUBJECTS)


def datagram(counter: int = 1, body_bytes: int = 24, channel_id: int = 7, epoch: int = 3) -> bytes:
    """Return a datagram with a header as in event.h, and a body of known bytes."""
    length = 16 + body_bytes
    header = bytes([3, epoch]) + length.to_bytes(2, "big") + channel_id.to_bytes(4, "big")
    return header + counter.to_bytes(8, "big") + random.Random(counter).randbytes(body_bytes)


def test_the_machine_has_a_backend() -> None:
    """OpenSSL comes with Python's own `ssl`; libIPSec_MB is tested where it is installed."""
    assert "evp" in seal_backends()


@subjects
@pytest.mark.parametrize("body_bytes", [0, 1, 15, 16, 17, 24, 128, 144, 255, 256, 1_216, 9_000])
def test_every_backend_seals_the_same_bytes(
    make: Callable[[bytes, bytes], Sealing], body_bytes: int
) -> None:
    plain = datagram(counter=2**40 + body_bytes, body_bytes=body_bytes)
    sealed = make(KEY, SALT).seal(plain)
    assert sealed == ReferenceSealKey(KEY, SALT).seal(plain)
    assert sealed[:16] == plain[:16]
    assert make(KEY, SALT).unseal(sealed) == plain


@subjects
def test_a_key_seals_and_opens_many_datagrams_in_turn(
    make: Callable[[bytes, bytes], Sealing],
) -> None:
    key, other = make(KEY, SALT), make(KEY[::-1], SALT)
    for counter in range(1, 300):
        plain = datagram(counter, body_bytes=counter)
        assert key.unseal(key.seal(plain)) == plain
        assert other.unseal(key.seal(plain)) is None


@subjects
def test_every_changed_bit_is_noticed(make: Callable[[bytes, bytes], Sealing]) -> None:
    key = make(KEY, SALT)
    sealed = key.seal(datagram(body_bytes=40))
    for bit in range(8 * len(sealed)):
        forged = bytearray(sealed)
        forged[bit // 8] ^= 1 << bit % 8
        assert key.unseal(bytes(forged)) is None, bit
    assert key.unseal(sealed) is not None


@subjects
def test_a_shortened_or_extended_datagram_is_noticed(
    make: Callable[[bytes, bytes], Sealing],
) -> None:
    key = make(KEY, SALT)
    sealed = key.seal(datagram(body_bytes=40))
    for size in range(len(sealed)):
        assert key.unseal(sealed[:size]) is None
    assert key.unseal(sealed + b"\0") is None


@subjects
@pytest.mark.parametrize(
    "other",
    [datagram(counter=2), datagram(channel_id=8), datagram(epoch=4)],
    ids=["counter", "channel", "epoch"],
)
def test_a_sealed_body_is_of_no_use_under_another_header(
    make: Callable[[bytes, bytes], Sealing], other: bytes
) -> None:
    key = make(KEY, SALT)
    assert key.unseal(other[:16] + key.seal(datagram())[16:]) is None


@subjects
@pytest.mark.parametrize("vector", load_golden("event.toml")["sealed"], ids=lambda row: row["name"])
def test_a_golden_datagram_is_sealed_to_the_same_bytes(
    make: Callable[[bytes, bytes], Sealing], vector: dict[str, Any]
) -> None:
    key = make(octets(vector["key"]), octets(vector["salt"]))
    plain, sealed = octets(vector["plain"]), octets(vector["bytes"])
    assert key.seal(plain, vector["port"]) == sealed
    assert key.unseal(sealed, vector["port"]) == plain


@subjects
def test_the_port_counts(make: Callable[[bytes, bytes], Sealing]) -> None:
    key = make(KEY, SALT)
    at_data, at_urgent = key.seal(datagram(), 0), key.seal(datagram(), 1)
    assert at_urgent == ReferenceSealKey(KEY, SALT).seal(datagram(), 1) != at_data
    assert key.unseal(at_urgent, 1) == key.unseal(at_data, 0) == datagram()
    assert key.unseal(at_urgent, 0) is None
    assert key.unseal(at_data, 1) is None


@subjects
def test_the_salt_counts(make: Callable[[bytes, bytes], Sealing]) -> None:
    assert make(KEY, b"tlas").unseal(make(KEY, SALT).seal(datagram())) is None


def test_a_key_or_backend_that_is_none_is_refused() -> None:
    with pytest.raises(LayoutError):
        SealKey(b"short", SALT)
    with pytest.raises(LayoutError):
        SealKey(KEY, b"long salt")
    with pytest.raises(UnknownName):
        SealKey(KEY, SALT, "rot13")
    with pytest.raises(LayoutError):
        SealKey(KEY, SALT).seal(b"no header")
    with pytest.raises(LayoutError):
        ReferenceSealKey(b"short", SALT)


# Counters near each other, at the edges of words and of the window, and far apart.
steps = st.lists(
    st.one_of(
        st.integers(-2_100, 2_100),
        st.sampled_from([0, 1, -1, 63, 64, 65, -2_047, -2_048, 2_047, 2_048, 10**6, 2**62]),
    ),
    max_size=60,
)


@given(start=st.sampled_from([0, 1, 64, 2_047, 2_048, 10**9, U64_MAX - 5_000]), jumps=steps)
def test_the_window_accepts_each_counter_once_as_the_reference_does(
    start: int, jumps: list[int]
) -> None:
    window, reference = ReplayWindow(), ReferenceReplayWindow()
    counter = start
    for jump in (0, *jumps):
        counter = min(max(counter + jump, 0), U64_MAX)
        assert window.is_new(counter) == reference.is_new(counter)
        if reference.is_new(counter):
            window.note(counter)
            reference.note(counter)
            assert not window.is_new(counter)


@pytest.mark.parametrize("newest", [2_048, 2_049, 6_143, 6_144, 6_145, 10**9])
def test_all_2048_counters_before_the_newest_are_remembered(newest: int) -> None:
    window = ReplayWindow()
    for counter in range(max(1, newest - 5_000), newest + 1):
        window.note(counter)
    oldest = max(0, newest - 10_000)
    assert [counter for counter in range(oldest, newest + 1) if window.is_new(counter)] == []


def test_a_counter_that_is_only_checked_moves_nothing() -> None:
    """A forger may claim any counter; the window is moved by what was opened."""
    window = ReplayWindow()
    window.note(5)
    assert window.is_new(U64_MAX)
    assert window.is_new(6)
    assert not window.is_new(5)
    assert window.is_new(4)
