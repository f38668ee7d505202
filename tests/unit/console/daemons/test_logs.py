"""Logs are one line an entry, for people or for machines."""

from __future__ import annotations

import json
import logging
import sys
from typing import TYPE_CHECKING

from gridstat.console.daemons.logs import JsonFormatter, PlainFormatter, set_up_logging

if TYPE_CHECKING:
    import pytest


def record(text: str, *, with_error: bool = False) -> logging.LogRecord:
    found = logging.LogRecord("gridstat.x", logging.WARNING, "x.py", 1, text, None, None)
    found.created = 1_700_000_000.25
    if with_error:
        try:
            raise ValueError("bad\nthing")
        except ValueError:
            found.exc_info = sys.exc_info()
    return found


def test_a_plain_entry_reads_from_left_to_right() -> None:
    told = PlainFormatter().format(record("no_session peer=broker/c1"))
    assert told == "2023-11-14T22:13:20.250+00:00 warning gridstat.x no_session peer=broker/c1"
    assert "ValueError" in PlainFormatter().format(record("failed", with_error=True))


def test_a_json_entry_is_one_line_even_with_an_exception() -> None:
    told = JsonFormatter().format(record("failed reason='é'", with_error=True))
    assert "\n" not in told
    entry = json.loads(told)
    assert (entry["event"], entry["text"]) == ("failed", "reason='é'")
    assert (entry["level"], entry["logger"]) == ("warning", "gridstat.x")
    assert "bad" in entry["exception"]


def test_the_log_can_be_changed_while_it_runs(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before, level_before = tuple(root.handlers), root.level
    asyncio_level = logging.getLogger("asyncio").level
    try:
        set_up_logging(level="warning")
        set_up_logging(level="info", is_json=True)
        logging.getLogger("gridstat.x").info("a_word key=1")
        logging.getLogger("gridstat.x").debug("not this")
        [line] = capsys.readouterr().err.splitlines()
        assert json.loads(line)["event"] == "a_word"
    finally:
        for handler in tuple(root.handlers):
            root.removeHandler(handler)
        for handler in before:
            root.addHandler(handler)
        root.setLevel(level_before)
        logging.getLogger("asyncio").setLevel(asyncio_level)
