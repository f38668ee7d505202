"""Whether a disk has room for a recorder: asked before it starts, and again and again after."""

from __future__ import annotations

import logging
import os
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import StorageFailed
from gridstat.record.log_settings import MIB

if TYPE_CHECKING:
    from pathlib import Path

FREE_BYTES_MIN: Final = 16 * MIB

log = logging.getLogger(__name__)


def check_disk(folder: Path, grows_by_bytes: int) -> None:
    """Raises if next to nothing can be recorded; says if the disk is full before the log is."""
    found_bytes = free_bytes(folder)
    if found_bytes < FREE_BYTES_MIN:
        raise StorageFailed(
            f"{folder}: the disk has {found_bytes // MIB} MiB left, and a recorder begins with "
            f"{FREE_BYTES_MIN // MIB} MiB at least",
            hint="make room on the disk, or record into another one: --into",
        )
    if found_bytes < grows_by_bytes:
        log.warning(
            "log_bound_beyond_disk folder=%s free=%d room=%d", folder, found_bytes, grows_by_bytes
        )


def free_bytes(folder: Path) -> int:
    """What may still be written to its file system, by anybody but root."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class DiskWatch:
    """Looks how much room is left; below `alarm_bytes` it is short, which is said once."""

    def __init__(self, folder: Path, alarm_bytes: int) -> None:
        self._folder = folder
        self._alarm_bytes = alarm_bytes
        self.free_bytes: int | None = None
        """At the last look; None if the file system does not tell."""
        self.is_short = False

    def look(self) -> None:
        try:
            self.free_bytes = free_bytes(self._folder)
        except OSError:  # The disk itself is in trouble, of which the logs complain.
            self.free_bytes = None
            return
        was_short, self.is_short = self.is_short, self.free_bytes < self._alarm_bytes
        if self.is_short and not was_short:
            log.warning(
                "disk_nearly_full folder=%s free=%d alarm=%d",
                self._folder,
                self.free_bytes,
                self._alarm_bytes,
            )
