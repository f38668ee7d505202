"""Status file of a recorder, in the folder of its log, for readers of the log.

It is written about once a second and is no record: it may be missing, or stem from a recorder that
ended long ago.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.recorder import RecorderFigures

STATUS_FILE: Final = "status.json"


def write_status(folder: Path, figures: RecorderFigures, now_ns: int) -> None:
    """Replace the file; a full disk keeps the old one."""
    text = json.dumps({"time_ns": now_ns, **asdict(figures)})
    fresh = folder / f"{STATUS_FILE}.new"
    with suppress(OSError):
        fresh.write_text(text, encoding="utf-8")
        fresh.replace(folder / STATUS_FILE)


def read_status(folder: Path) -> dict[str, Any] | None:
    """Return the last status, None if there is no readable file."""
    try:
        found = json.loads((folder / STATUS_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
