"""Progress of a pipeline, in a small file that any process may read while the pipeline runs."""

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
    """Progress after a batch; counts run from the very first batch, also across restarts."""

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
    """Rows a second of the last batch."""
    lag_s: float
    """Age of the newest event of the last batch when its tables were committed."""
    watermark_ns: int
    updated_ns: int


def write_progress(folder: Path, progress: Progress) -> None:
    """A reader sees the old file or the new one."""
    fresh = folder / f"{PROGRESS_FILE}.{os.getpid()}"
    fresh.write_text(json.dumps(asdict(progress)) + "\n", encoding="utf-8")
    fresh.replace(folder / PROGRESS_FILE)


def read_progress(folder: Path) -> dict[str, Any]:
    """Return the progress that was written last; empty before the first batch."""
    try:
        with (folder / PROGRESS_FILE).open("rb") as file:
            found = json.loads(file.read(PROGRESS_BYTES_MAX))
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
