"""Whether a disk has room for a recorder, asked before it starts."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import StorageFailed
from gridstat.record.settings import MIB

if TYPE_CHECKING:
    from pathlib import Path

FREE_BYTES_MIN: Final = 16 * MIB

log = logging.getLogger(__name__)


def check_disk(folder: Path, grows_by_bytes: int) -> None:
    """Raises if next to nothing can be recorded; says if the disk is full before the log is."""
    found = os.statvfs(folder)
    free_bytes = found.f_bavail * found.f_frsize
    if free_bytes < FREE_BYTES_MIN:
        raise StorageFailed(
            f"{folder}: the disk has {free_bytes // MIB} MiB left, and a recorder begins with "
            f"{FREE_BYTES_MIN // MIB} MiB at least",
            hint="make room on the disk, or record into another one: --into",
        )
    if free_bytes < grows_by_bytes:
        log.warning(
            "log_bound_beyond_disk folder=%s free=%d room=%d", folder, free_bytes, grows_by_bytes
        )
