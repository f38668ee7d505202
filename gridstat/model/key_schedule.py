"""Keys of a sealed channel: one seed from the broker, and a chain of epochs that both ends derive.

A broker gives both ends of a one-way channel the same seed. The seed of an epoch is the seed of the
epoch before, put through HKDF-SHA256 (RFC 5869), so both ends go on alone while the broker is away,
and a key that leaks says nothing about earlier epochs. The key and the salt of an epoch come from
its seed, the channel and the number of the epoch, so no two channels share a key.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass, field
from typing import Final

from gridstat.model.rate_law import NS_PER_S

SEED_BYTES: Final = 32
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4
EPOCHS: Final = 256
"""Epochs that the header of a datagram can tell apart; numbers go on, and the header wraps."""
EPOCH_NS: Final = 120 * NS_PER_S
EPOCH_DATAGRAMS: Final = 2**23
"""An epoch ends after this time or this many datagrams, whichever comes first."""
OLD_EPOCH_NS: Final = 10 * NS_PER_S
"""Time for which a receiver accepts the epoch before the newest that it has received."""
RESEED_NS: Final = 3_600 * NS_PER_S
"""Time after which a broker gives a fresh seed."""
SEED_NS_MAX: Final = 24 * 3_600 * NS_PER_S
"""Time for which a channel works without a fresh seed."""

_HASH: Final = hashlib.sha256
_HASH_BYTES: Final = _HASH().digest_size
_NEXT: Final = b"gridstat next epoch"
_KEY: Final = b"gridstat channel key"


@dataclass(frozen=True, slots=True)
class EpochKey:
    """Key and salt of one epoch of a channel; its text shows neither."""

    key: bytes = field(repr=False)
    salt: bytes = field(repr=False)


def next_seed(seed: bytes) -> bytes:
    """Return the seed of the epoch after the one with this seed."""
    _check_seed(seed)
    return expand(seed, _NEXT, SEED_BYTES)


def epoch_key(seed: bytes, channel_id: int, epoch: int) -> EpochKey:
    """Return the key of a channel in the epoch that has this seed."""
    _check_seed(seed)
    info = _KEY + channel_id.to_bytes(4, "big") + epoch.to_bytes(8, "big")
    both = expand(seed, info, KEY_BYTES + SALT_BYTES)
    return EpochKey(both[:KEY_BYTES], both[KEY_BYTES:])


def extract(salt: bytes, secret: bytes) -> bytes:
    """Return HKDF's pseudorandom key of a secret (RFC 5869 §2.2)."""
    return hmac.digest(salt, secret, _HASH)


def expand(pseudorandom_key: bytes, info: bytes, size: int) -> bytes:
    """Return `size` bytes derived from a pseudorandom key (RFC 5869 §2.3)."""
    assert 0 < size <= 255 * _HASH_BYTES
    found, block, number = b"", b"", 0
    while len(found) < size:
        number += 1
        block = hmac.digest(pseudorandom_key, block + info + bytes([number]), _HASH)
        found += block
    return found[:size]


def _check_seed(seed: bytes) -> None:
    assert len(seed) == SEED_BYTES, "a seed has 32 bytes"
