"""Sealing of datagrams in plain Python: the oracle of `seal.c`, whose head draws the bytes."""

from __future__ import annotations

from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from gridstat.model.errors import LayoutError

HEADER_BYTES: Final = 16
KEY_BYTES: Final = 16
SALT_BYTES: Final = 4
TAG_BYTES: Final = 16
REPLAY_DATAGRAMS: Final = 2048


class ReferenceSealKey:
    """Key of one channel and epoch."""

    def __init__(self, key: bytes, salt: bytes) -> None:
        if len(key) != KEY_BYTES or len(salt) != SALT_BYTES:
            raise LayoutError(f"a key of {len(key)} and a salt of {len(salt)} bytes, not 16 and 4")
        self._cipher = AESGCM(key)
        self._salt = salt

    def seal(self, datagram: bytes) -> bytes:
        """Return the sealed datagram: header, encrypted events, tag."""
        header, events = datagram[:HEADER_BYTES], datagram[HEADER_BYTES:]
        return header + self._cipher.encrypt(self._nonce(header), events, header)

    def unseal(self, datagram: bytes) -> bytes | None:
        """Return header and events of a sealed datagram, or None if it is forged or damaged."""
        if len(datagram) < HEADER_BYTES + TAG_BYTES:
            return None
        header, sealed = datagram[:HEADER_BYTES], datagram[HEADER_BYTES:]
        try:
            return header + self._cipher.decrypt(self._nonce(header), sealed, header)
        except InvalidTag:
            return None

    def _nonce(self, header: bytes) -> bytes:
        return self._salt + header[8:16]


class ReferenceReplayWindow:
    """Counters that were accepted under one key, back to 2,047 before the newest."""

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
