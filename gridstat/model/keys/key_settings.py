"""Times of keys, and a seed with the times that hold for it.

The giver of a seed decides the times, and sends them with the seed, so that both ends of a channel
always agree. Nothing may be longer than the bounds; tests and experiments rotate faster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gridstat.model.errors import LayoutError
from gridstat.model.key_schedule import (
    EPOCH_NS,
    EPOCHS,
    RESEED_NS,
    SEED_BYTES,
    SEED_NS_MAX,
    epoch_key,
)

NS_PER_MS: Final = 1_000_000
EPOCH_MAX: Final = 1 << 62
"""Bound of epoch numbers; a chain of 24 hours never reaches it from a first epoch."""
FIRST_EPOCH_MAX: Final = 1 << 32
EPOCH_MS_MIN: Final = 10
STEPS_MAX: Final = 4_096
"""Epochs that an end derives at once; an end that is farther behind waits for a fresh seed."""
OVERDUE_RESEEDS: Final = 2
"""A seed is overdue when it is older than this many intervals of fresh seeds."""


@dataclass(frozen=True, slots=True)
class KeySettings:
    """Length of an epoch, interval of fresh seeds, and life of a seed, in milliseconds."""

    epoch_ms: int = EPOCH_NS // NS_PER_MS
    reseed_ms: int = RESEED_NS // NS_PER_MS
    life_ms: int = SEED_NS_MAX // NS_PER_MS

    def __post_init__(self) -> None:
        bounds = (
            ("epoch_ms", self.epoch_ms, EPOCH_MS_MIN, EPOCH_NS // NS_PER_MS),
            ("reseed_ms", self.reseed_ms, EPOCH_MS_MIN, RESEED_NS // NS_PER_MS),
            ("life_ms", self.life_ms, EPOCH_MS_MIN, SEED_NS_MAX // NS_PER_MS),
        )
        for name, value, least, most in bounds:
            if not least <= value <= most:
                raise LayoutError(
                    f"keys: {name} {value} is not {least} to {most}",
                    hint=f"give {name} as a whole number from {least} to {most}",
                )

    @property
    def overdue_ns(self) -> int:
        """Age from which the lack of a fresh seed is reported."""
        return OVERDUE_RESEEDS * self.reseed_ms * NS_PER_MS


KEYS_DEFAULT: Final = KeySettings()


class NumberedKey(NamedTuple):
    """Key and salt of one epoch, with the byte that names the epoch in a datagram's header."""

    epoch_byte: int
    key: bytes
    salt: bytes

    def __repr__(self) -> str:
        return f"NumberedKey(epoch_byte={self.epoch_byte})"


@dataclass(frozen=True, slots=True)
class Seed:
    """Seed of a channel, as its giver made it; `number` tells the exchanges of a channel apart."""

    channel_id: int
    number: int
    secret: bytes = field(repr=False)
    settings: KeySettings = KEYS_DEFAULT

    def __post_init__(self) -> None:
        if len(self.secret) != SEED_BYTES:
            raise LayoutError(f"a seed has {SEED_BYTES} bytes, not {len(self.secret)}")


def numbered_key(secret: bytes, channel_id: int, epoch: int) -> NumberedKey:
    """Return the key of an epoch with this secret, ready for a core."""
    found = epoch_key(secret, channel_id, epoch)
    return NumberedKey(epoch % EPOCHS, found.key, found.salt)
