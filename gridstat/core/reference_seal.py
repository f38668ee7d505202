"""Sealing of datagrams in plain Python: the oracle of `seal.c`, whose head draws the bytes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gridstat.core.key_settings import DROPPED_KEYS_MAX
from gridstat.model.errors import LayoutError
from gridstat.model.key_schedule import EPOCH_DATAGRAMS

if TYPE_CHECKING:
    from collections.abc import Collection

    from gridstat.core.key_settings import ChannelKey, ReceivingState

HEADER_BYTES: Final = 16
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4
TAG_BYTES: Final = 16
REPLAY_DATAGRAMS: Final = 2048
SEALED_DATAGRAMS_MAX: Final = EPOCH_DATAGRAMS - 2**19
"""Datagrams under one key since it was set: as `GS_SEALED_DATAGRAMS_MAX`."""


class ReferenceSealKey:
    """Key of one channel and epoch."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        if len(key) != KEY_BYTES or len(salt) != SALT_BYTES:
            raise LayoutError(f"a key of {len(key)} and a salt of {len(salt)} bytes, not 16 and 4")
        self._cipher = AESGCM(key)
        self._salt = salt

    def seal(self, datagram: bytes, port: int = 0) -> bytes:
        """Return the sealed datagram: header, encrypted events, tag."""
        header, events = datagram[:HEADER_BYTES], datagram[HEADER_BYTES:]
        return header + self._cipher.encrypt(self._nonce(header, port), events, header)

    def unseal(self, datagram: bytes, port: int = 0) -> bytes | None:
        """Return header and events of a sealed datagram, or None if it is forged or damaged."""
        if len(datagram) < HEADER_BYTES + TAG_BYTES:
            return None
        header, sealed = datagram[:HEADER_BYTES], datagram[HEADER_BYTES:]
        try:
            return header + self._cipher.decrypt(self._nonce(header, port), sealed, header)
        except InvalidTag:
            return None

    def _nonce(self, header: bytes, port: int) -> bytes:
        return self._salt[:-1] + bytes([self._salt[-1] ^ port]) + header[8:16]


class ReferenceReplayWindow:
    """Counters that were accepted under one key on one port, back to 2,047 before the newest."""

    def __init__(self) -> None:
        self._newest = 0
        self._seen: set[int] = set()

    def is_new(self, counter: int) -> bool:
        """Return whether a counter is valid, not too old, and was not noted."""
        return self._newest - REPLAY_DATAGRAMS < counter != 0 and counter not in self._seen

    def note(self, counter: int) -> None:
        """Note the counter of an authentic datagram that is new."""
        self._newest = max(self._newest, counter)
        self._seen = {each for each in self._seen if each > self._newest - REPLAY_DATAGRAMS}
        self._seen.add(counter)


@dataclass(slots=True)
class ReferenceSealing:
    """The key that a sender uses, and the datagrams that were sealed with it."""

    epoch: int
    key: ReferenceSealKey
    datagrams: int = 0

    @property
    def is_used_up(self) -> bool:
        """True once the key has sealed as many datagrams as it may."""
        return self.datagrams >= SEALED_DATAGRAMS_MAX


@dataclass(eq=False, slots=True)
class AcceptedKey:
    """A key that a receiver accepts, or has dropped, with a window for each port."""

    words: ChannelKey
    key: ReferenceSealKey
    windows: tuple[ReferenceReplayWindow, ReferenceReplayWindow]
    has_opened: bool = False
    """The flag is true once the key has opened a datagram."""
    is_opener: bool = False
    """The flag is true if the key has opened a datagram since that was last asked for."""
    is_told: bool = False
    """Dropped, and what it opened was asked for since."""


@dataclass(slots=True)
class ReferenceOpening:
    """What a sealed source knows of its keys; `channel_keys.c` is the fast version."""

    keys: dict[int, AcceptedKey] = field(default_factory=dict)
    dropped: list[AcceptedKey] = field(default_factory=list)
    """Keys that have opened datagrams and may come back, oldest first."""
    unknown: set[int] = field(default_factory=set)

    def set_keys(self, keys: tuple[ChannelKey, ...]) -> None:
        """Accept these keys and no others; one that stays, or comes back, keeps its windows."""
        before, self.keys = self.keys, {}
        known = {each.words: each for each in (*self.dropped, *before.values())}
        for words in keys:
            self.keys[words[0]] = known.get(words) or _accept(words)
        accepted = list(self.keys.values())
        kept = [each for each in self.dropped if each not in accepted][-DROPPED_KEYS_MAX:]
        left = [each for each in before.values() if each.has_opened and each not in accepted]
        for each in left:
            each.is_told = False
        self.dropped = [*kept, *left]

    def open(self, datagram: bytes, port: int) -> bytes | str:
        """Return header and events of an authentic datagram, else the counter of its fault."""
        epoch, counter = datagram[1], int.from_bytes(datagram[8:16], "big")
        accepted = self.keys.get(epoch)
        if accepted is None:
            self.unknown.add(epoch)
            return "sealed_unknown_epoch"
        window = accepted.windows[port]
        if not window.is_new(counter):
            return "sealed_replayed"
        end = int.from_bytes(datagram[2:4], "big") + TAG_BYTES
        opened = accepted.key.unseal(datagram[:end], port)
        if opened is None:
            return "sealed_forged"
        window.note(counter)
        accepted.has_opened = accepted.is_opener = True
        return opened

    def state(self) -> ReceivingState:
        """Return what was noted since the last call, and forget it."""
        unknown, self.unknown = self.unknown, set()
        self.dropped = [each for each in self.dropped if not each.is_told]
        for each in self.dropped:
            each.is_told = True
        return {
            "epochs": _take_openers(self.keys.values()),
            "dropped_epochs": _take_openers(self.dropped),
            "unknown_epochs": tuple(sorted(unknown)),
        }


def _accept(words: ChannelKey) -> AcceptedKey:
    windows = (ReferenceReplayWindow(), ReferenceReplayWindow())
    return AcceptedKey(words, ReferenceSealKey(words[1], words[2]), windows)


def _take_openers(keys: Collection[AcceptedKey]) -> tuple[int, ...]:
    found = {each.words[0] for each in keys if each.is_opener}
    for each in keys:
        each.is_opener = False
    return tuple(sorted(found))
