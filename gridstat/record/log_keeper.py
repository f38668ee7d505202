"""One log of a recorder that continues after disk errors: it counts failures instead of raising.

A full log or a full disk takes no records until there is free space again. After a failed sync the
contents of the disk are unknown, so the log is opened again, which truncates it to the recorded
part.
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

KEPT_SHARE: Final = 0.9
"""Share of the alarm size that a log with `keep_s` may reach before it drops old segments."""

log = logging.getLogger(__name__)


class LogKeeper:
    """A log whose opening may raise, and whose later operations do not.

    With `keep_s`, closed segments are removed when they are older, and the oldest when the log
    nears its bound. Without it, only archived segments are removed.
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
        """Reason why no records are taken at present; empty if they are."""
        self.is_full = False
        self.failures = 0
        self.released_bytes = 0
        """Bytes of removed segments since the start."""

    @property
    def recorded(self) -> int:
        """Number of records on the disk, those of earlier runs included."""
        return self._recorded if self._writer is None else self._writer.recorded

    @property
    def log_bytes(self) -> int:
        return 0 if self._writer is None else self._writer.log_bytes

    @property
    def is_nearly_full(self) -> bool:
        return self._writer is not None and self._writer.is_nearly_full

    def append(self, batch: pa.RecordBatch) -> int:
        """Add records; return how many of them, from the first on, were taken."""
        writer = self._writer
        if writer is None:
            return 0
        before = writer.appended
        try:
            writer.append(batch)
            self._clear_failure()
        except GridStatError as error:
            self._record_failure(error)
        return writer.appended - before

    def sync(self) -> int:
        """Bring taken records to the disk; return how many of the newest were lost instead."""
        writer = self._writer
        if writer is None:
            self._reopen()
            return 0
        try:
            writer.sync()
        except GridStatError as error:
            self._record_failure(error)
        if not writer.is_failed:
            self._warn_once()
            return 0
        lost = writer.appended - writer.recorded
        self._recorded = writer.recorded
        writer.close()
        self._writer = None
        self._reopen()
        return lost

    def tend(self) -> None:
        """Close an old segment, and release archived or outdated ones."""
        if self._writer is None:
            return
        try:
            self._writer.tend()
            archived = archived_before(self._folder, self._kind)
            outdated = self._outdated_before(self._writer)
            freed = self._writer.release(max(archived, outdated))
        except GridStatError as error:
            self._record_failure(error)
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
            self._record_failure(error)

    def close(self) -> None:
        if self._writer is not None:
            self._recorded = self._writer.recorded
            try:
                self._writer.close()
            except GridStatError as error:
                self._record_failure(error)
            self._recorded = self._writer.recorded
            self._writer = None

    def _outdated_before(self, writer: LogWriter) -> int:
        if self._keep_s is None:
            return 0
        kept_bytes = KEPT_SHARE * self._settings.alarm_share * self._settings.log_bytes_max
        return writer.outdated_before(
            self._now_ns() - round(self._keep_s * NS_PER_S), round(kept_bytes)
        )

    def _opened(self) -> LogWriter:
        return LogWriter(self._folder, self._kind, now_ns=self._now_ns, settings=self._settings)

    def _reopen(self) -> None:
        try:
            self._writer = self._opened()
        except GridStatError as error:
            self._record_failure(error)

    def _record_failure(self, error: GridStatError) -> None:
        self.failures += 1
        self.is_full = isinstance(error, LogFull)
        if str(error) != self.complaint:
            log.error("not_recorded log=%s reason=%s", self._kind.name, str(error))
        self.complaint = str(error)

    def _clear_failure(self) -> None:
        if self.complaint:
            log.info("recorded_again log=%s", self._kind.name)
        self.complaint, self.is_full = "", False

    def _warn_once(self) -> None:
        """Log a warning once, when the log passes the alarm share of its bound."""
        if self.is_nearly_full and not self._was_nearly_full:
            log.warning(
                "log_nearly_full log=%s bytes=%d of=%d",
                self._kind.name,
                self.log_bytes,
                self._settings.log_bytes_max,
            )
        self._was_nearly_full = self.is_nearly_full
