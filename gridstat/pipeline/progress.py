"""How far a pipeline is, in a small file that anybody may read while it runs."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

PROGRESS_FILE: Final = "progress.json"
PROGRESS_BYTES_MAX: Final = 65_536


@dataclass(frozen=True, slots=True)
class Progress:
    """After a batch; counts are since the first batch of all, also across restarts."""

    state: str
    """`running`, `draining`, `ended`."""
    batch: int
    recorded: int
    """The end of the log: as many records as are there to be taken."""
    taken: int
    """Records up to which everything is archived or quarantined."""
    archived: int
    quarantined: int
    alarms: int
    rows_per_s: float
    """Of the last batch."""
    lag_s: float
    """How old the newest event of the last batch was when its tables were committed."""
    watermark_ns: int
    updated_ns: int


def write_progress(folder: Path, progress: Progress) -> None:
    """A reader sees the old file or the new one."""
    fresh = folder / f"{PROGRESS_FILE}.{os.getpid()}"
    fresh.write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")
    fresh.replace(folder / PROGRESS_FILE)


def read_progress(folder: Path) -> dict[str, Any]:
    """What was written last; empty before the first batch."""
    try:
        with (folder / PROGRESS_FILE).open("rb") as file:
            found = json.loads(file.read(PROGRESS_BYTES_MAX))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
