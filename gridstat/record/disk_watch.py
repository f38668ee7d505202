"""Check of free disk space for a recorder, before it starts and while it runs."""

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
    """Raise if hardly anything can be recorded; warn if the disk may fill up before the log."""
    found_bytes = free_bytes(folder)
    if found_bytes < FREE_BYTES_MIN:
        raise StorageFailed(
            f"{folder}: the disk has {found_bytes // MIB} MiB left, and a recorder begins with "
            f"{FREE_BYTES_MIN // MIB} MiB at least",
            hint="free space on the disk, or record into another one: --into",
        )
    if found_bytes < grows_by_bytes:
        log.warning(
            "log_bound_beyond_disk folder=%s free=%d room=%d", folder, found_bytes, grows_by_bytes
        )


def free_bytes(folder: Path) -> int:
    """Return the free space of the file system for users other than root."""
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class DiskWatch:
    """Measures free disk space; below `alarm_bytes` it is short, which is logged once."""

    def __init__(self, folder: Path, alarm_bytes: int) -> None:
        self._folder = folder
        self._alarm_bytes = alarm_bytes
        self.free_bytes: int | None = None
        """Free space at the last check; None if it could not be read."""
        self.is_short = False

    def check(self) -> None:
        try:
            self.free_bytes = free_bytes(self._folder)
        except OSError:  # The disk is failing, which the logs report themselves.
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
