"""Log of a daemon: standard error, as `key=value` for people or JSON for machines."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Final

from gridstat.console.shown_text import shown_text

LEVELS: Final = ("debug", "info", "warning", "error")


class PlainFormatter(logging.Formatter):
    """One line an entry: time, level, where, what; a traceback is indented below it."""

    def format(self, record: logging.LogRecord) -> str:
        text = f"{_time(record)} {record.levelname.lower()} {record.name} "
        text += shown_text(record.getMessage())
        if not record.exc_info:
            return text
        # Indented, so that no line of a foreign text in it looks like an entry.
        lines = self.formatException(record.exc_info).split("\n")
        return "\n  ".join((text, *map(shown_text, lines)))


class JsonFormatter(logging.Formatter):
    """One JSON object a line; an exception is a text in it, so lines stay whole."""

    def format(self, record: logging.LogRecord) -> str:
        word, _, rest = record.getMessage().partition(" ")
        entry = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": word,
            "text": rest,
        }
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


def set_up_logging(*, level: str = "info", is_json: bool = False) -> None:
    """Begin, or change, the log of this process; called again, it replaces what was."""
    output = logging.StreamHandler(sys.stderr)
    output.setFormatter(JsonFormatter() if is_json else PlainFormatter())
    root = logging.getLogger()
    for before in tuple(root.handlers):
        root.removeHandler(before)
    root.addHandler(output)
    root.setLevel(level.upper())
    # The daemon's own records are logged; those of asyncio only from warnings on.
    logging.getLogger("asyncio").setLevel(logging.WARNING)


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, tz=UTC).isoformat(timespec="milliseconds")
