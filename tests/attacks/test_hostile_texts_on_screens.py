"""Attack: names and reasons that steer the terminal of the person who watches the grid.

A peer chooses its name, the names of its variables and the reasons that it gives. Markup of rich,
control characters, overrides of the writing direction, codes of emoji and line ends in them must
reach every screen, line, log and error as plain text, in the line to which they belong.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import re
import sys
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from gridstat.console.cli import command_errors
from gridstat.console.cli.command_errors import print_failure, print_plainly
from gridstat.console.cli.explain import explained_subscription
from gridstat.console.cli.flood import flood_lines
from gridstat.console.cli.top import print_survey
from gridstat.console.daemons.logs import JsonFormatter, PlainFormatter
from gridstat.console.fitted_table import FittedTable, print_table
from gridstat.console.live.closing_account import ClosingAccount, SubscriptionAccount
from gridstat.console.live.displays import JsonDisplay, LiveDisplay, TextDisplay
from gridstat.console.live.grid_survey import GridSurvey
from gridstat.console.live.pages import View
from gridstat.console.live.screen import Screen
from gridstat.console.live.tree_view import tree_lines
from gridstat.model.errors import LinkDown

if TYPE_CHECKING:
    from collections.abc import Callable

    from gridstat.console.live.displays import Display

MARKUP = "c1/mallory/[/x]"
HOSTILE = [
    MARKUP,
    "c1/mallory/[link=http://evil.example]x",
    "c1/mallory/:warning:",
    "c1/mallory/\x1b]0;owned\x07",
    "c1/mallory/\x9b2J\x7f",
    "c1/mallory/\u202e\u2066gnorw",
    "c1/mallory/\r\nforged line\x85forged line\u2028forged line",
    "c1/mallory/in\u200bvisi\u3164ble\U000e0041",
    "c1/mallory/blank\u2800\U00016fe4\U0001d159",
]
STEERS = re.compile(
    r"\x1b\]|[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f]"
    r"|[\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u2800\u2d7f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufffc]"
    r"|[\U0001107f\U00013440-\U00013442\U00016fe4\U0001bc9d\U0001d159]"
    r"|[\U000e0000-\U000e0fff]"
)


def assert_plain(text: str, hostile: str) -> None:
    """Nothing steers, no line is forged, and markup and codes stand as they were written."""
    assert not STEERS.search(text), text
    assert not re.search(r"^forged line", text, re.MULTILINE), text
    if hostile.isprintable() and hostile.isascii():
        assert hostile in text


def survey(hostile: str) -> dict[str, Any]:
    """A survey in which every text that a peer chooses is hostile."""
    path = {"name": hostile, "routers": ["a", hostile, "b"], "is_open": True, "lost": 3}
    counts = {"expected": 9, "delivered": 6, "late": 0, "lost": 0, "dropped": 0, "first": 0}
    return {
        "cloud": hostile,
        "broker": hostile,
        "term": 1,
        "totals": {"routers": 1, "channels": 1, "subscriptions": 2},
        "routers": [
            {
                "name": hostile,
                "role": hostile,
                "is_up": True,
                "is_connected": True,
                "in_step": False,
                "refusal": hostile,
                "refusals": 1,
                "events_per_s": 1.0,
                "events_per_s_max": 1,
                "variables": 1,
                "counters": {},
            }
        ],
        "channels": [
            {
                "label": hostile,
                "is_up": False,
                "is_back_pressured": True,
                "bytes_per_s": 1.0,
                "bandwidth_bytes_per_s": 1,
                "variables": 1,
                "loss_ratio": 0.5,
                "datagram_version": 2,
                "counters": {},
            }
        ],
        "subscriptions": [
            {
                "subscriber": hostile,
                "name": hostile,
                "paths": [],
                "state": hostile,
                "ledger": {**counts, "paths": [{**path, "expected": 9}]},
            }
        ],
    }


def console_of(file: io.StringIO) -> Console:
    return Console(file=file, force_terminal=True, width=200, height=60, color_system=None)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_top_prints_a_hostile_survey(hostile: str) -> None:
    file = io.StringIO()
    print_survey(console_of(file), survey(hostile))
    assert_plain(file.getvalue(), hostile)


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize(
    "display_on",
    [LiveDisplay, TextDisplay, lambda console: JsonDisplay(console, console)],
    ids=["screen", "text", "json"],
)
def test_up_shows_a_hostile_grid_from_start_to_end(
    display_on: Callable[[Console], Display], hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = io.StringIO()
    grid_survey = GridSurvey({hostile: survey(hostile)}, {hostile: hostile}, {hostile: 1.0})
    account = ClosingAccount(
        1.0, 1, (SubscriptionAccount(hostile, hostile, 1, 0, 0),), (hostile,), (hostile,)
    )

    async def run() -> None:
        display = display_on(console_of(file))
        display.progress(f"starting, waiting for {hostile}")
        display.started(f"grid of {hostile}".split("\n", maxsplit=1)[0], {hostile: 1})
        display.show(grid_survey)
        display.show_message(f"no survey of {hostile}: {hostile}")
        display.show(grid_survey)
        display.ended(account)
        display.close()

    asyncio.run(run())
    assert_plain(file.getvalue() + capsys.readouterr().err, hostile)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_lines_logged_behind_a_screen_are_plain_when_it_closes(
    hostile: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def run() -> None:
        screen = Screen(console_of(io.StringIO()), View("title"))
        sys.stderr.write(f"peer={hostile}".replace("\n", " ") + "\n")
        screen.close()

    asyncio.run(run())
    assert_plain(capsys.readouterr().err, hostile)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_lines_of_explain_tree_and_flood_are_plain(hostile: str) -> None:
    subscription = {
        "subscriber": hostile,
        "state": hostile,
        "granted": {},
        "paths": [{"routers": [hostile], "latency_us": 1}],
        "ledger": {"paths": [{"name": hostile, "routers": [], "is_open": False}]},
        "degraded": [hostile],
    }
    flood = {"name": hostile, "modes": [], "refusing": {hostile: hostile}}
    grid_survey = GridSurvey({}, {hostile: hostile}, {})
    file = io.StringIO()
    console = console_of(file)
    lines = [*explained_subscription(subscription), *flood_lines(flood), *tree_lines(grid_survey)]
    for line in lines:
        print_plainly(console, line)
    print_plainly(console, json.dumps({"name": hostile}))
    assert_plain(file.getvalue(), hostile)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_titles_and_column_names_of_tables_are_plain(hostile: str) -> None:
    file = io.StringIO()
    table = FittedTable(hostile, "other", title=hostile)
    table.add_row(hostile, hostile)
    print_table(console_of(file), table)
    assert_plain(file.getvalue(), hostile)
    assert_plain(str(table.lines(200).head), hostile)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_an_error_with_a_foreign_reason_is_its_own_two_lines(
    hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    monkeypatch.setattr(command_errors, "Console", lambda **_: console_of(file))
    print_failure(LinkDown(f"refused: {hostile}", hint=f"ask {hostile}"))
    assert_plain(file.getvalue(), hostile)
    first, second = file.getvalue().splitlines()
    assert first.startswith("error: refused: c1/mallory")
    assert second.startswith("hint: ask c1/mallory")


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("formatter", [PlainFormatter(), JsonFormatter()])
def test_a_log_entry_stays_one_line(formatter: logging.Formatter, hostile: str) -> None:
    record = logging.LogRecord("a", logging.INFO, "f", 1, "peer=%s", (hostile,), None)
    line = formatter.format(record)
    assert_plain(line, hostile)
    assert len(line.splitlines()) == 1


def test_a_traceback_cannot_forge_an_entry_of_the_log() -> None:
    try:
        raise ValueError("x\n2026-11-18T00:00:00.000+00:00 info a forged\x1b]0;owned\x07")
    except ValueError:
        record = logging.LogRecord("a", logging.INFO, "f", 1, "failed", (), sys.exc_info())
    first, *others = PlainFormatter().format(record).splitlines()
    assert first.endswith("info a failed")
    assert all(line.startswith("  ") for line in others)
    assert not STEERS.search("".join(others))
