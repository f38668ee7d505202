"""The keys of a sealed channel, and HKDF by the vectors of RFC 5869."""

from __future__ import annotations

import pytest

from gridstat.model.key_schedule import EpochKey, epoch_key, expand, extract, next_seed

SEED = bytes(range(32))
RFC_5869 = [
    (
        "0b" * 22,
        "000102030405060708090a0b0c",
        "f0f1f2f3f4f5f6f7f8f9",
        "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865",
    ),
    (
        "0b" * 22,
        "",
        "",
        "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8",
    ),
]


@pytest.mark.parametrize(("secret", "salt", "info", "expected"), RFC_5869)
def test_hkdf_computes_the_answers_of_its_standard(
    secret: str, salt: str, info: str, expected: str
) -> None:
    found = extract(bytes.fromhex(salt), bytes.fromhex(secret))
    assert expand(found, bytes.fromhex(info), 42) == bytes.fromhex(expected)


def test_both_ends_derive_the_same_keys_alone() -> None:
    here, there = SEED, SEED
    for epoch in range(1, 1_000):
        here, there = next_seed(here), next_seed(there)
        assert epoch_key(here, 7, epoch) == epoch_key(there, 7, epoch)


def test_no_two_channels_and_epochs_share_a_key() -> None:
    seeds = [SEED]
    for _ in range(300):
        seeds.append(next_seed(seeds[-1]))
    keys = {
        epoch_key(seed, channel_id, epoch).key
        for epoch, seed in enumerate(seeds)
        for channel_id in range(1, 11)
    }
    assert len(keys) == 301 * 10


def test_the_number_of_an_epoch_counts_and_not_only_its_seed() -> None:
    """The header tells 256 epochs apart; the same byte 256 epochs later is another key."""
    assert epoch_key(SEED, 7, 1) != epoch_key(SEED, 7, 257)


def test_the_text_of_a_key_shows_nothing_of_it() -> None:
    assert repr(epoch_key(SEED, 7, 1)) == "EpochKey()"
    assert EpochKey(b"k" * 16, b"s" * 4) == EpochKey(b"k" * 16, b"s" * 4)
