"""Mark of the archived part of a log: one record number in a file, written by the pipeline.

Only the recorder removes segments, since it holds the log's lock. It reads the mark periodically
and releases every closed segment that lies wholly before it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import StorageFailed
from gridstat.record.manifest import sync_folder

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.record_kinds import RecordKind

ARCHIVED_FILE: Final = "archived"


def note_archived(folder: Path, kind: RecordKind, before_record: int) -> None:
    """Mark all records of this kind before a number as archived; the mark never decreases."""
    if before_record <= archived_before(folder, kind):
        return
    path = folder / kind.name / ARCHIVED_FILE
    fresh = path.with_suffix(".new")
    try:
        with fresh.open("w", encoding="ascii") as file:
            file.write(f"{before_record}\n")
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise StorageFailed(
            f"{path}: {error.strerror}", hint="the log keeps its segments until the mark is written"
        ) from error


def archived_before(folder: Path, kind: RecordKind) -> int:
    """Return the number of the first record not marked as archived, 0 without a mark."""
    path = folder / kind.name / ARCHIVED_FILE
    try:
        return int(path.read_text(encoding="ascii"))
    except FileNotFoundError:
        return 0
    except (OSError, ValueError) as error:
        raise StorageFailed(
            f"{path} contains no number: {error}", hint="remove the file; it is written again"
        ) from error
