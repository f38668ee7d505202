"""Keys and states of sealed channels as Python passes and reads them, checked before C sees them.

A key never stands in an error's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

from gridstat.model.errors import LayoutError, LimitReached, Misuse
from gridstat.model.key_schedule import EPOCHS, KEY_BYTES, SALT_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

TAG_BYTES: Final = 16
"""Bytes behind the events of a sealed datagram."""
KEYS_MAX: Final = 8
"""Keys that a receiver accepts on one channel at a time."""
DROPPED_KEYS_MAX: Final = 16
"""Dropped keys that are kept with their windows, if nobody asks what they opened."""

ChannelKey: TypeAlias = tuple[int, bytes, bytes]
"""The epoch as the header says it (0 to 255), the key of 16 bytes and the salt of 4."""


class SendingState(TypedDict):
    """State of a sealed outgoing channel."""

    epoch: int
    """Epoch of the key in use; -1: there is none."""
    datagrams: int
    """Datagrams sealed with this key."""
    first_counter: int
    """Counter of the first datagram since the channel was opened."""
    newest_counter: int
    """Counter of the last datagram; one less than the first before any was sent."""


class ReceivingState(TypedDict):
    """State of a sealed incoming channel."""

    epochs: tuple[int, ...]
    """Epochs, since the last call, of authentic datagrams under keys that are accepted."""
    dropped_epochs: tuple[int, ...]
    """The same for keys that are accepted no more. One that was dropped keeps its windows until
    this was asked for, and once more; whoever accepts it again later accepts all it has opened."""
    unknown_epochs: tuple[int, ...]
    """Epochs, since the last call, of datagrams for which there was no key; anybody can send
    them."""


def checked_key(epoch: int, key: bytes, salt: bytes) -> ChannelKey:
    """Return the key; raise `LayoutError` if a part of it has the wrong size."""
    if not 0 <= epoch < EPOCHS:
        raise LayoutError(f"epoch {epoch} is not 0 to {EPOCHS - 1}")
    if len(key) != KEY_BYTES or len(salt) != SALT_BYTES:
        raise LayoutError(
            f"a key of {len(key)} and a salt of {len(salt)} bytes, not {KEY_BYTES} and {SALT_BYTES}"
        )
    return epoch, bytes(key), bytes(salt)


def checked_keys(keys: Iterable[ChannelKey]) -> tuple[ChannelKey, ...]:
    """Return the keys that a receiver accepts; raise `LayoutError` or `LimitReached` if they cannot
    be accepted together."""
    checked = tuple(checked_key(*key) for key in keys)
    if len(checked) > KEYS_MAX:
        raise LimitReached(
            f"{len(checked)} keys for one channel, at most {KEYS_MAX}", hint="leave out old epochs"
        )
    if len({epoch for epoch, _, _ in checked}) != len(checked):
        raise LayoutError(
            "two keys have the same epoch",
            hint="the header of a datagram could not tell them apart",
        )
    return checked


def no_seal_key(backend: str) -> LimitReached:
    """Return the error of a key that could not be made; `backend` is the library's full name, empty
    on a machine that has none."""
    if backend:
        return LimitReached(
            f"no memory for a key of {backend}",
            hint="free memory on this machine, or raise the memory limit of this process",
        )
    return LimitReached(
        "this machine has no such library to seal datagrams",
        hint="install OpenSSL's libcrypto, or libIPSec_MB (Debian: libipsec-mb1)",
    )


def not_sealed(channel_id: int) -> Misuse:
    """Return the error of a key for a channel without sealing."""
    return Misuse(f"channel {channel_id} is not sealed", hint="open it with is_sealed=True")
