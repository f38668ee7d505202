"""Keys of a terminal, one by one as they are pressed, while a screen is shown."""

from __future__ import annotations

import asyncio
import os
import re
import termios
import tty
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, Self

if TYPE_CHECKING:
    from collections.abc import Callable

SEQUENCE: Final = re.compile(
    rb"\x1b[\[O][ -?]*(?:[@-~]|(?=[^ -~]))|\x1b(?![\[O])|[^\x1b]", re.DOTALL
)
"""A key or report of several bytes, a lone Escape, or one byte.

By ECMA-48 a sequence has parameters (also private ones, such as `?`) and intermediate bytes, and
ends with one of `@` to `~`. Another byte cuts it off.
"""
PENDING_MAX: Final = 64
READ_MAX: Final = 1_024


class Key(Enum):
    """Actions that a key stands for."""

    NEXT = "next"
    PREVIOUS = "previous"
    FIRST = "first"
    LAST = "last"
    END = "end"


KEYS: Final = {
    **dict.fromkeys((b"n", b"N", b" ", b"\r", b"\n", b"j"), Key.NEXT),
    **dict.fromkeys((b"\x1b[6~", b"\x1b[C", b"\x1b[B", b"\x1bOC", b"\x1bOB"), Key.NEXT),
    **dict.fromkeys((b"p", b"P", b"b", b"\x7f", b"\x08", b"k"), Key.PREVIOUS),
    **dict.fromkeys((b"\x1b[5~", b"\x1b[D", b"\x1b[A", b"\x1bOD", b"\x1bOA"), Key.PREVIOUS),
    **dict.fromkeys((b"g", b"\x1b[H", b"\x1bOH", b"\x1b[1~"), Key.FIRST),
    **dict.fromkeys((b"G", b"\x1b[F", b"\x1bOF", b"\x1b[4~"), Key.LAST),
    **dict.fromkeys((b"q", b"Q"), Key.END),
}


class KeyDecoder:
    """Turns bytes of a terminal into keys; a sequence may come in several pieces."""

    def __init__(self) -> None:
        self._pending = b""

    def feed(self, data: bytes) -> list[Key]:
        data = self._pending + data
        found: list[Key] = []
        at = 0
        while match := SEQUENCE.match(data, at):
            if match[0] == b"\x1b" and match.end() == len(data):
                break  # The rest of a sequence may follow.
            at = match.end()
            key = KEYS.get(match[0])
            if key is not None:
                found.append(key)
        rest = data[at:]
        self._pending = rest if len(rest) <= PENDING_MAX else b""
        return found


class Keyboard:
    """The terminal gives each key at once and does not echo it, until `close`.

    Ctrl-C stays what it is, a signal.
    """

    def __init__(self, descriptor: int, on_key: Callable[[Key], None]) -> None:
        self._descriptor = descriptor
        self._on_key = on_key
        self._decoder = KeyDecoder()
        self._before = termios.tcgetattr(descriptor)
        self._loop = asyncio.get_running_loop()
        tty.setcbreak(descriptor, termios.TCSADRAIN)
        self._loop.add_reader(descriptor, self._read)

    @classmethod
    def open(cls, descriptor: int, on_key: Callable[[Key], None]) -> Self | None:
        """Open the keyboard; None without a terminal, or in a background process."""
        try:
            is_ours = os.isatty(descriptor) and os.tcgetpgrp(descriptor) == os.getpgrp()
            return cls(descriptor, on_key) if is_ours else None
        except (OSError, termios.error):
            return None

    def close(self) -> None:
        self._loop.remove_reader(self._descriptor)
        # A terminal that was closed needs nothing back.
        with suppress(OSError, termios.error):
            termios.tcsetattr(self._descriptor, termios.TCSADRAIN, self._before)

    def _read(self) -> None:
        try:
            data = os.read(self._descriptor, READ_MAX)
        except OSError:
            data = b""
        if not data:
            self._loop.remove_reader(self._descriptor)
        for key in self._decoder.feed(data):
            self._on_key(key)
