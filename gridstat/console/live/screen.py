"""A full screen that shows a view page by page, follows the terminal's size, and obeys keys."""

from __future__ import annotations

import asyncio
import io
import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack, redirect_stderr
from typing import TYPE_CHECKING, Final

from rich.console import Group
from rich.live import Live
from rich.text import Text

from gridstat.console.live.keyboard import Key, Keyboard
from gridstat.console.live.pages import View, pages_of
from gridstat.console.shown_text import shown_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.console import Console, RenderableType

    from gridstat.console.live.pages import Page

LINES_HELD: Final = 50
LINE_MAX: Final = 1_000
FRAME_LINES: Final = 2
"""The title above a page, and the keys below it."""


class Screen:
    """Shows the newest view until it is closed; then the terminal is as it was before.

    The key q is a Ctrl-C that cannot be pressed twice by mistake: only the first one counts.
    """

    def __init__(self, console: Console, view: View) -> None:
        self._console = console
        self._view = view
        self._page = 0
        self._is_ending = False
        self._live = Live(
            self._drawn(has_keys=False),
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._errors = _HeldLines()
        self._outside = ExitStack()
        self._live.start()
        # What is logged meanwhile would overwrite the screen.
        self._outside.enter_context(redirect_stderr(self._errors))
        self._is_shown = True
        self._keyboard = _keyboard(self._obey)
        self._loop = asyncio.get_running_loop()
        self._loop.add_signal_handler(signal.SIGWINCH, self._redraw)
        self._loop.add_signal_handler(signal.SIGTSTP, self._suspend)
        self._loop.add_signal_handler(signal.SIGCONT, self._resume)
        self._redraw()

    def show(self, view: View) -> None:
        self._view = view
        self._redraw()

    def close(self) -> None:
        for number in (signal.SIGWINCH, signal.SIGTSTP, signal.SIGCONT):
            self._loop.remove_signal_handler(number)
        if self._keyboard is not None:
            self._keyboard.close()
        self._live.stop()
        self._outside.close()
        for line in self._errors.lines:
            sys.stderr.write(f"{shown_text(line)}\n")

    def _obey(self, key: Key) -> None:
        match key:
            case Key.NEXT:
                self._page += 1
            case Key.PREVIOUS:
                self._page = max(0, self._page - 1)
            case Key.FIRST:
                self._page = 0
            case Key.LAST:
                self._page = sys.maxsize
            case Key.END:
                if not self._is_ending:
                    self._is_ending = True
                    signal.raise_signal(signal.SIGINT)
        self._redraw()

    def _suspend(self) -> None:
        """Ctrl-Z: the shell gets its terminal as it was."""
        self._is_shown = False
        if self._keyboard is not None:
            self._keyboard.close()
            self._keyboard = None
        self._console.set_alt_screen(enable=False)
        self._console.show_cursor(show=True)
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self) -> None:
        """Show the screen again, if the process is in the foreground; in the background the
        terminal is the shell's."""
        if self._is_shown or not _is_in_front():
            return
        self._console.set_alt_screen(enable=True)
        self._console.show_cursor(show=False)
        self._keyboard = _keyboard(self._obey)
        self._is_shown = True
        self._redraw()

    def _redraw(self) -> None:
        if not self._is_shown:
            return
        self._live.update(self._drawn(has_keys=self._keyboard is not None), refresh=True)

    def _drawn(self, *, has_keys: bool) -> RenderableType:
        """The page at which one is, of those that there are now."""
        width, height = self._console.size
        pages = pages_of(self._view, width, height - FRAME_LINES)
        self._page = min(self._page, len(pages) - 1)
        return framed(pages, self._page, (width, height), title=self._view.title, has_keys=has_keys)


def _keyboard(on_key: Callable[[Key], None]) -> Keyboard | None:
    try:
        return Keyboard.open(sys.stdin.fileno(), on_key)
    except (OSError, ValueError):
        return None  # Standard input is closed.


def _is_in_front() -> bool:
    """Return whether this process may write on its terminal; True if there is no terminal."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except (OSError, ValueError):
        return True


def has_screen(console: Console) -> bool:
    """Return whether the output is a terminal that can show a screen; a dumb one prints lines
    only."""
    return console.is_terminal and not console.is_dumb_terminal


class _HeldLines(io.TextIOBase):
    """Keeps the last written lines, to be shown when the screen is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=LINES_HELD)
        self._begun = ""

    def write(self, text: str, /) -> int:
        *whole, self._begun = f"{self._begun}{text}".split("\n")
        self.lines.extend(line[:LINE_MAX] for line in whole)
        self._begun = self._begun[:LINE_MAX]
        return len(text)

    def writable(self) -> bool:
        return True


def framed(
    pages: list[Page], page: int, size: tuple[int, int], *, title: str, has_keys: bool
) -> Group:
    """One page with the title above and the keys below, as high as the terminal."""
    width, height = size
    lines = [line() for line in pages[page]][: max(0, height - FRAME_LINES)]
    lines += [Text()] * (height - FRAME_LINES - len(lines))
    clock = time.strftime("%H:%M:%S")
    head = Text(f"{shown_text(title)}  {clock}", "bold reverse")
    foot = Text(footer_text(page, len(pages), width, has_keys=has_keys), "reverse")
    # On a screen of one line the keys remain.
    drawn = [head, *lines, foot][-height:]
    for line in drawn:
        line.truncate(width, overflow="ellipsis")
        line.no_wrap = True
    for line in (head, foot):
        line.pad_right(max(0, width - line.cell_len))
    return Group(*drawn)


def footer_text(page: int, count: int, width: int, *, has_keys: bool) -> str:
    """Return the page number and the keys that work; shorter if the text does not fit."""
    place = f"page {page + 1} of {count}"
    if not has_keys:
        return f"{place} | Ctrl-C: end"
    if count == 1:
        return f"{place} | q or Ctrl-C: end"
    texts = [
        f"{place} | n or space: next | p: previous | q or Ctrl-C: end",
        f"{place} | n: next | p: previous | q: end",
        f"{page + 1}/{count} n: next p: previous q: end",
    ]
    return next((text for text in texts if len(text) <= width), "n, p, q")
