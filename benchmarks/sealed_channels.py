"""Keys of the sealed channels of a run: both ends derive the same key, as a seed would give it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.core._core import seal_backends
from gridstat.model.key_schedule import SEED_BYTES, epoch_key

if TYPE_CHECKING:
    from gridstat.core.key_settings import ChannelKey

NONE: Final = ""
"""Channels that are not sealed."""
EVP: Final = "evp"
IPSEC_MB: Final = "ipsec-mb"
EPOCH: Final = 1
SEED: Final = bytes(range(SEED_BYTES))


def key_of(channel_id: int, epoch: int = EPOCH) -> ChannelKey:
    """Return the key of a channel, by its number and epoch."""
    found = epoch_key(SEED, channel_id, epoch)
    return epoch % 256, found.key, found.salt


def backend_of(seal: str) -> str:
    """Return the library for a run; any serves a run without sealed channels."""
    return seal or "best"


def backends_here() -> tuple[str, ...]:
    """Return the libraries that this machine has, the faster one first."""
    found = seal_backends()
    return tuple(name for name in (IPSEC_MB, EVP) if found.get(name))
