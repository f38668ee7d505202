"""Keys of a terminal: by one byte or several, in whatever pieces they come."""

from __future__ import annotations

import asyncio
import os
import termios
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from gridstat.console.live.keyboard import PENDING_MAX, Key, Keyboard, KeyDecoder

if TYPE_CHECKING:
    from collections.abc import Iterator

LOCAL_FLAGS = 3


@pytest.mark.parametrize(
    ("data", "keys"),
    [
        (b"n p", [Key.NEXT, Key.NEXT, Key.PREVIOUS]),
        (b"\x1b[6~\x1b[5~", [Key.NEXT, Key.PREVIOUS]),
        (b"\x1b[C\x1bOD", [Key.NEXT, Key.PREVIOUS]),
        (b"gG", [Key.FIRST, Key.LAST]),
        (b"q", [Key.END]),
        (b"\x1bq", [Key.END]),
        (b"xyz\x00\xff\x1b[99~", []),
        pytest.param(b"\x1b[?1;2cn", [Key.NEXT], id="a terminal says what it is"),
        pytest.param(b"\x1b[?997;1nq", [Key.END], id="a private report that ends like a key"),
        pytest.param(b"\x1b[>0;276;0c\x1b[<0;1;1Mp", [Key.PREVIOUS], id="other private bytes"),
        pytest.param(b"\x1b[1 qn", [Key.NEXT], id="an intermediate byte"),
        pytest.param(b"\x1b[[An", [Key.NEXT], id="F1 of a console"),
        pytest.param(b"\x1b[1\x1b[Cq", [Key.NEXT, Key.END], id="one that another one cuts off"),
        pytest.param(b"\x1b[1\nq", [Key.NEXT, Key.END], id="one that a key cuts off"),
    ],
)
def test_keys_are_known_by_their_bytes(data: bytes, keys: list[Key]) -> None:
    assert KeyDecoder().feed(data) == keys
    decoder = KeyDecoder()
    assert [key for at in range(len(data)) for key in decoder.feed(data[at : at + 1])] == keys


def test_a_sequence_without_end_is_forgotten() -> None:
    decoder = KeyDecoder()
    assert decoder.feed(b"\x1b[" + b"1" * PENDING_MAX) == []
    assert decoder.feed(b"n") == [Key.NEXT]


@contextmanager
def terminal() -> Iterator[tuple[int, int]]:
    ours, theirs = os.openpty()
    try:
        yield ours, theirs
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_keyboard_gives_keys_at_once_and_leaves_the_terminal_as_it_was() -> None:
    async def press(ours: int, theirs: int) -> Key:
        pressed: asyncio.Queue[Key] = asyncio.Queue()
        keyboard = Keyboard(theirs, pressed.put_nowait)
        flags = termios.tcgetattr(theirs)[LOCAL_FLAGS]
        assert not flags & (termios.ICANON | termios.ECHO)
        assert flags & termios.ISIG, "Ctrl-C stays a signal"
        os.write(ours, b"n")
        found = await pressed.get()
        keyboard.close()
        return found

    with terminal() as (ours, theirs):
        before = termios.tcgetattr(theirs)
        assert asyncio.run(press(ours, theirs)) is Key.NEXT
        assert termios.tcgetattr(theirs) == before


def test_without_a_terminal_of_ones_own_there_is_no_keyboard() -> None:
    reading, writing = os.pipe()
    try:
        assert Keyboard.open(reading, lambda _: None) is None
    finally:
        os.close(reading)
        os.close(writing)
    with terminal() as (_, theirs):
        # It is a terminal, but not the one that controls this process.
        assert Keyboard.open(theirs, lambda _: None) is None
