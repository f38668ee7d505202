"""One log of a recorder that goes on whatever the disk does: it counts instead of raising.

A log that is full, or a disk without room, takes nothing until there is room again. After a failed
sync nobody knows what the disk holds, so the log is opened anew, which cuts it to what is recorded.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import GridStatError, LogFull
from gridstat.record.archive_mark import archived_before
from gridstat.record.log_writer import NS_PER_S, LogWriter

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import pyarrow as pa

    from gridstat.record.log_settings import LogSettings
    from gridstat.record.record_kinds import RecordKind

ROOM_SHARE: Final = 0.9
"""Of the alarm's share of the bound a log may take that releases by itself."""

log = logging.getLogger(__name__)


class LogKeeper:
    """Opened once with an error for the person who starts it, and from then on kept going.

    With `keep_s`, closed segments go when they are older, and the oldest when the log nears its
    bound; without, only what the archive has taken over.
    """

    def __init__(
        self,
        folder: Path,
        kind: RecordKind,
        *,
        now_ns: Callable[[], int],
        settings: LogSettings,
        keep_s: float | None = None,
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._now_ns = now_ns
        self._settings = settings
        self._keep_s = keep_s
        self._writer: LogWriter | None = self._opened()
        self._recorded = self._writer.recorded
        self._was_nearly_full = False
        self.complaint = ""
        """Why nothing is taken at the moment, if so."""
        self.is_full = False
        self.failures = 0
        self.released_bytes = 0
        """What was removed since the start."""

    @property
    def recorded(self) -> int:
        """How many records are safe, those of earlier times included."""
        return self._recorded if self._writer is None else self._writer.recorded

    @property
    def log_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.log_bytes

    @property
    def is_nearly_full(self) -> bool:
        return self._writer is not None and self._writer.is_nearly_full

    def append(self, batch: pa.RecordBatch) -> int:
        """Add records; how many of them, the first ones, were taken."""
        writer = self._writer
        if writer is None:
            return 0
        before = writer.appended
        try:
            writer.append(batch)
            self._is_well()
        except GridStatError as error:
            self._complain(error)
        return writer.appended - before

    def sync(self) -> int:
        """Make safe what was taken; how many of the newest were lost instead."""
        writer = self._writer
        if writer is None:
            self._reopen()
            return 0
        try:
            writer.sync()
        except GridStatError as error:
            self._complain(error)
        if not writer.is_failed:
            self._warn()
            return 0
        lost = writer.appended - writer.recorded
        self._recorded = writer.recorded
        writer.close()
        self._writer = None
        self._reopen()
        return lost

    def tend(self) -> None:
        """Close a segment that is old, and release what is archived or outdated."""
        if self._writer is None:
            return
        try:
            self._writer.tend()
            archived = archived_before(self._folder, self._kind)
            outdated = self._outdated_before(self._writer)
            freed = self._writer.release(max(archived, outdated))
        except GridStatError as error:
            self._complain(error)
            return
        self.released_bytes += freed
        if freed:
            log.info(
                "released log=%s archived=%d outdated=%d bytes=%d",
                self._kind.name,
                archived,
                outdated,
                freed,
            )

    def rotate(self) -> None:
        """Close the open segment."""
        try:
            if self._writer is not None:
                self._writer.rotate()
        except GridStatError as error:
            self._complain(error)

    def close(self) -> None:
        if self._writer is not None:
            self._recorded = self._writer.recorded
            try:
                self._writer.close()
            except GridStatError as error:
                self._complain(error)
            self._recorded = self._writer.recorded
            self._writer = None

    def _outdated_before(self, writer: LogWriter) -> int:
        if self._keep_s is None:
            return 0
        room_bytes = ROOM_SHARE * self._settings.alarm_share * self._settings.log_bytes_max
        return writer.outdated_before(
            self._now_ns() - round(self._keep_s * NS_PER_S), round(room_bytes)
        )

    def _opened(self) -> LogWriter:
        return LogWriter(self._folder, self._kind, now_ns=self._now_ns, settings=self._settings)

    def _reopen(self) -> None:
        try:
            self._writer = self._opened()
        except GridStatError as error:
            self._complain(error)

    def _complain(self, error: GridStatError) -> None:
        self.failures += 1
        self.is_full = isinstance(error, LogFull)
        if str(error) != self.complaint:
            log.error("not_recorded log=%s reason=%s", self._kind.name, str(error))
        self.complaint = str(error)

    def _is_well(self) -> None:
        if self.complaint:
            log.info("recorded_again log=%s", self._kind.name)
        self.complaint, self.is_full = "", False

    def _warn(self) -> None:
        """Once, when the alarm share of the bound is passed."""
        if self.is_nearly_full and not self._was_nearly_full:
            log.warning(
                "log_nearly_full log=%s bytes=%d of=%d",
                self._kind.name,
                self.log_bytes,
                self._settings.log_bytes_max,
            )
        self._was_nearly_full = self.is_nearly_full
