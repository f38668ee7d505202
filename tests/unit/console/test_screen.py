"""A screen while it is shown: nothing else writes on it, and what was held comes out behind it."""

from __future__ import annotations

import asyncio
import io
import logging
import sys

import pytest
from rich.console import Console

from gridstat.console.live.pages import Section, View
from gridstat.console.live.screen import Screen, has_screen

ALTERNATE, ORDINARY = "\x1b[?1049h", "\x1b[?1049l"


def test_what_is_logged_while_a_screen_is_shown_follows_when_it_is_closed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True, width=80, height=24, legacy_windows=False)

    async def show() -> None:
        screen = Screen(console, View("title", sections=[Section("rows", ["one"])]))
        sys.stderr.write("first\nsec")
        logging.StreamHandler(sys.stderr).stream.write("ond\n")
        assert capsys.readouterr().err == "", "it would overwrite the screen"
        screen.show(View("title", sections=[Section("rows", ["two"])]))
        screen.close()

    asyncio.run(show())
    assert capsys.readouterr().err == "first\nsecond\n"
    drawn = file.getvalue()
    assert drawn.index(ALTERNATE) < drawn.index("one") < drawn.index("two")
    assert drawn.rindex("two") < drawn.index(ORDINARY)
    assert "first" not in drawn


@pytest.mark.parametrize(
    ("is_terminal", "kind", "has_one"),
    [(True, "xterm", True), (True, "dumb", False), (False, "xterm", False)],
)
def test_a_pipe_and_a_terminal_that_only_prints_have_no_screen(
    monkeypatch: pytest.MonkeyPatch, is_terminal: bool, kind: str, has_one: bool
) -> None:
    monkeypatch.setenv("TERM", kind)
    console = Console(file=io.StringIO(), force_terminal=is_terminal)
    assert has_screen(console) is has_one
