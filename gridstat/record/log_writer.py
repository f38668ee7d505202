"""Writer of one log; it holds the lock of its folder.

`append` passes bytes to the operating system. `sync` brings them to the disk and into the manifest;
from then on they are recorded. A killed writer leaves bytes that the manifest does not list; the
next writer truncates them.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Self

from gridstat.model.errors import LogFull, StorageFailed
from gridstat.record.log_settings import LogSettings
from gridstat.record.manifest import (
    ENTRIES_MAX,
    ENTRY_BYTES,
    MANIFEST_FILE,
    Extent,
    encode_extent,
    read_extents,
    rewrite,
    sync_folder,
)
from gridstat.record.segment import (
    ALIGNMENT,
    FRAME_RECORDS_MAX,
    SUFFIX,
    SegmentHead,
    decode_head,
    encode_frame,
    encode_head,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from types import TracebackType

    import pyarrow as pa

    from gridstat.record.record_kinds import RecordKind

logger = logging.getLogger(__name__)

LOCK_FILE: Final = "lock"
NS_PER_S: Final = 1_000_000_000
_NEVER_NS: Final = (1 << 63) - 1
_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_RESTORE: Final = "restore the file from a copy, or move the whole folder away to start a new log"


class LogWriter:
    """One log, open for appending.

    Invariant: all records up to `recorded` are on the disk and in the manifest; records from there
    up to `appended` are with the operating system and follow at the next `sync`.
    """

    def __init__(
        self,
        folder: Path,
        kind: RecordKind,
        *,
        now_ns: Callable[[], int],
        settings: LogSettings | None = None,
    ) -> None:
        self._folder = folder / kind.name
        self._kind = kind
        self._now_ns = now_ns
        self._settings = LogSettings() if settings is None else settings
        self._segment = self._manifest = -1
        self._extents: list[Extent] = []
        self._entries = 0
        self._open_extent: Extent | None = None
        self._open_recorded: Extent | None = None
        self.is_failed = False
        self.appended = self.recorded = 0
        self._lock = -1
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock = self._take_lock()
            self._resume()
        except OSError as error:
            self._close_files()
            raise _failed(self._folder, error) from error
        except BaseException:
            self._close_files()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def log_bytes(self) -> int:
        """Size of all segments."""
        grown = 0 if self._open_extent is None else self._open_extent.end_byte
        return sum(extent.end_byte for extent in self._extents) + grown

    @property
    def is_nearly_full(self) -> bool:
        return self.log_bytes >= self._settings.alarm_share * self._settings.log_bytes_max

    def append(self, batch: pa.RecordBatch) -> None:
        """Add records of the log's kind, in frames; after an error, `appended` shows how far."""
        if self.is_failed:
            raise StorageFailed(
                f"{self._folder} could not be written before", hint="restart the recorder"
            )
        for start in range(0, batch.num_rows, FRAME_RECORDS_MAX):
            self._append_frame(batch.slice(start, FRAME_RECORDS_MAX))

    def sync(self) -> int:
        """Bring appended records to the disk; return the number of all recorded ones."""
        if self.appended > self.recorded and not self.is_failed:
            self._commit(is_closed=False)
        return self.recorded

    def rotate(self) -> None:
        """Close the open segment, unless it is empty."""
        if self._open_extent is not None and self._open_extent.records and not self.is_failed:
            self._commit(is_closed=True)

    def tend(self) -> None:
        """Close the open segment if it is old, also when no records come."""
        extent = self._open_extent
        if extent is not None and self._is_old_or_large(extent, 0, self._now_ns()):
            self.rotate()

    def outdated_before(self, before_ns: int, log_bytes_max: int) -> int:
        """Return the first record to keep, given an oldest time and a maximum size of the log."""
        log_bytes = self.log_bytes
        for extent in self._extents:
            if extent.latest_ns >= before_ns and log_bytes <= log_bytes_max:
                return extent.first_record
            log_bytes -= extent.end_byte
        return self._extents[-1].end_record if self._extents else 0

    def release(self, before_record: int) -> int:
        """Remove closed segments that lie wholly before this record; return the bytes freed."""
        released = [extent for extent in self._extents if extent.end_record <= before_record]
        if self._open_recorded is None:  # The last segment says at which number the log continues.
            released = released[: len(self._extents) - 1]
        if not released or self.is_failed:
            return 0
        names = [segment_name(extent.first_record) for extent in released]
        before = self._extents
        self._extents = [each for each in before if each not in released]
        try:
            try:
                self._rewrite_manifest()
            except OSError:  # A full disk gets space from segments that are removed anyway.
                self._unlink(names)
                self._rewrite_manifest()
            self._unlink(names)
        except OSError as error:
            self._extents = before
            self.is_failed = True  # The manifest may now be another file than the open one.
            raise _failed(self._folder, error) from error
        return sum(extent.end_byte for extent in released)

    def _unlink(self, names: list[str]) -> None:
        for name in names:
            (self._folder / name).unlink(missing_ok=True)

    def close(self) -> None:
        """Bring appended records to the disk, and release the lock."""
        if self._lock < 0:
            return
        try:
            self.sync()
        finally:
            self._close_files()

    def _take_lock(self) -> int:
        lock = os.open(self._folder / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise StorageFailed(
                f"another recorder writes to {self._folder}",
                hint="one recorder to a folder: stop the other, or give this one its own",
            ) from error
        return lock

    def _open(self, name: str) -> int:
        return os.open(
            self._folder / name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )

    def _close_files(self) -> None:
        for descriptor in (self._segment, self._manifest, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._segment = self._manifest = self._lock = -1

    def _resume(self) -> None:
        """Truncate what the manifest does not list, and continue the last segment."""
        self._extents, entry_bytes = read_extents(self._folder / MANIFEST_FILE)
        self._manifest = self._open(MANIFEST_FILE)
        os.ftruncate(self._manifest, entry_bytes)
        self._entries = entry_bytes // ENTRY_BYTES
        self.appended = self.recorded = self._extents[-1].end_record if self._extents else 0
        self._remove_unlisted()
        if self._extents:
            version = self._version_of(self._extents[-1])
            if not self._extents[-1].is_closed:
                self._reopen(self._extents.pop())
            if version < self._kind.version:
                self.rotate()  # A segment holds records of one version.

    def _version_of(self, extent: Extent) -> int:
        """Return the version of a segment's records; raise if a newer release has written them."""
        path = self._folder / segment_name(extent.first_record)
        try:
            with path.open("rb") as file:
                head = file.read(ALIGNMENT)
        except FileNotFoundError as error:
            raise StorageFailed(f"{path} is missing", hint=_RESTORE) from error
        return decode_head(head, self._kind, str(path)).kind_version

    def _remove_unlisted(self) -> None:
        named = {segment_name(extent.first_record) for extent in self._extents}
        for path in self._folder.glob(f"*{SUFFIX}"):
            if path.name not in named:
                logger.warning("segment was never recorded, removed path=%s", path)
                path.unlink()

    def _reopen(self, last: Extent) -> None:
        path = self._folder / segment_name(last.first_record)
        size = path.stat().st_size
        if size < last.end_byte:
            raise StorageFailed(
                f"{path} has {size:,} bytes, and the manifest counts {last.end_byte:,}",
                hint=_RESTORE,
            )
        self._segment = self._open(path.name)
        if size > last.end_byte:
            logger.warning("torn tail cut path=%s bytes=%d", path, size - last.end_byte)
            os.ftruncate(self._segment, last.end_byte)
        self._open_extent = self._open_recorded = last

    def _append_frame(self, batch: pa.RecordBatch) -> None:
        parts = encode_frame(batch, self._kind, self.appended)
        size = sum(map(len, parts))
        self._prepare_segment(size)
        extent = self._open_extent
        assert extent is not None
        self._write(parts, size, extent.end_byte)
        times = batch.column(self._kind.time).to_numpy()
        self.appended += batch.num_rows
        self._open_extent = replace(
            extent,
            end_record=self.appended,
            end_byte=extent.end_byte + size,
            earliest_ns=min(extent.earliest_ns, int(times.min())),
            latest_ns=max(extent.latest_ns, int(times.max())),
        )

    def _prepare_segment(self, size: int) -> None:
        now_ns = self._now_ns()
        if self.log_bytes + size + ALIGNMENT > self._settings.log_bytes_max:
            raise LogFull(f"{self._folder} has reached {self._settings.log_bytes_max:,} bytes")
        extent = self._open_extent
        if extent is not None and self._is_old_or_large(extent, size, now_ns):
            self.rotate()
        if self._open_extent is None:
            self._begin_segment(now_ns)

    def _is_old_or_large(self, extent: Extent, size: int, now_ns: int) -> bool:
        age_ns = now_ns - extent.began_ns
        # A clock set back would keep the segment open for long; a negative age closes it.
        is_young = 0 <= age_ns < self._settings.segment_s_max * NS_PER_S
        has_room = extent.end_byte + size <= self._settings.segment_bytes_max
        return extent.records > 0 and not (is_young and has_room)

    def _begin_segment(self, now_ns: int) -> None:
        head = SegmentHead(self._kind.code, self._kind.version, self.appended, now_ns)
        try:
            self._segment = self._open(segment_name(self.appended))
            os.ftruncate(self._segment, 0)  # A failed attempt may have left bytes.
            self._write([encode_head(head)], ALIGNMENT, 0)
            sync_folder(self._folder)
        except (OSError, StorageFailed) as error:
            if self._segment >= 0:
                os.close(self._segment)
                self._segment = -1
            if isinstance(error, OSError):
                raise _failed(self._folder, error) from error
            raise
        self._open_extent = Extent(
            self.appended, self.appended, ALIGNMENT, now_ns, _NEVER_NS, -_NEVER_NS, is_closed=False
        )

    def _write(self, parts: list[bytes], size: int, position: int) -> None:
        """Write all parts; on failure, restore the segment or mark the writer as failed."""
        written = 0
        try:
            rest = [memoryview(part) for part in parts]
            while written < size:
                count = os.writev(self._segment, rest)
                written += count
                rest = _remaining(rest, count)
        except OSError as error:
            self._truncate(position)
            raise _failed(self._folder, error) from error

    def _truncate(self, position: int) -> None:
        try:
            os.ftruncate(self._segment, position)
        except OSError:
            self.is_failed = True  # No frame may follow half a frame; the next start truncates it.

    def _commit(self, *, is_closed: bool) -> None:
        assert self._open_extent is not None
        extent = replace(self._open_extent, is_closed=is_closed)
        try:
            os.fdatasync(self._segment)
            self._append_entry(extent)
        except OSError as error:
            self.is_failed = True  # The contents of the disk are unknown until the next start.
            raise StorageFailed(
                f"{self._folder}: {error.strerror}", hint="look at the disk; it may be failing"
            ) from error
        self.recorded = self.appended
        self._open_recorded = extent
        if is_closed:
            self._extents.append(extent)
            self._open_extent = self._open_recorded = None
            os.close(self._segment)
            self._segment = -1

    def _append_entry(self, extent: Extent) -> None:
        if self._entries >= ENTRIES_MAX:
            self._rewrite_manifest()
        position = self._entries * ENTRY_BYTES
        try:
            count = os.write(self._manifest, encode_extent(extent))
            if count != ENTRY_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fdatasync(self._manifest)
        except OSError:
            os.ftruncate(self._manifest, position)
            raise
        if not self._entries:
            sync_folder(self._folder)
        self._entries += 1

    def _rewrite_manifest(self) -> None:
        kept = list(self._extents)
        if self._open_recorded is not None:
            kept.append(self._open_recorded)
        rewrite(self._folder / MANIFEST_FILE, kept)
        fresh = self._open(MANIFEST_FILE)
        os.close(self._manifest)
        self._manifest = fresh
        self._entries = len(kept)


def _failed(folder: Path, error: OSError) -> StorageFailed:
    is_full = error.errno in _FULL
    hint = "free space on the disk" if is_full else "make the folder writable"
    return StorageFailed(f"{folder}: {error.strerror}", hint=f"{hint}; what was recorded is safe")


def _remaining(parts: list[memoryview], count: int) -> list[memoryview]:
    """Return the parts that remain to be written."""
    while parts and count >= len(parts[0]):
        count -= len(parts[0])
        parts = parts[1:]
    return [parts[0][count:], *parts[1:]] if parts else []
