"""The manifest of a log: the valid extent of each segment.

The manifest is a file of entries. Each sync of the open segment adds one, and the last entry of
each segment is the valid one. An entry is written only after its bytes are on the disk, so all
further bytes of the segment are the torn tail of a killed writer, and were never recorded.

offset | size | field of an entry, little-endian
     0 |    8 | number of the segment's first record, its name
     8 |    8 | number after its last valid record
    16 |    8 | its valid bytes
    24 |    8 | when the segment began, ns since 1970
    32 |    8 | earliest time of a record in the segment
    40 |    8 | latest time of a record in the segment
    48 |    4 | 1 if the segment is closed, 0 if it may grow
    52 |    8 | 0
    60 |    4 | CRC-32 of the 60 bytes before
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO, Final
from zlib import crc32

from gridstat.model.errors import DamagedLog

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

MANIFEST_FILE: Final = "manifest"
ENTRY_BYTES: Final = 64
ENTRIES_MAX: Final = 100_000
"""Number of entries after which the file is rewritten with one entry for each segment."""
_ENTRY: Final = struct.Struct("<QQQqqqI8s")
_CHECKSUM: Final = struct.Struct("<I")


@dataclass(frozen=True, slots=True)
class Extent:
    """The valid part of a segment."""

    first_record: int
    end_record: int
    end_byte: int
    began_ns: int
    earliest_ns: int
    latest_ns: int
    is_closed: bool

    @property
    def records(self) -> int:
        return self.end_record - self.first_record


def encode_extent(extent: Extent) -> bytes:
    fields = _ENTRY.pack(
        extent.first_record,
        extent.end_record,
        extent.end_byte,
        extent.began_ns,
        extent.earliest_ns,
        extent.latest_ns,
        extent.is_closed,
        bytes(8),
    )
    return fields + _CHECKSUM.pack(crc32(fields))


class ManifestReader:
    """Incremental reader of a manifest: each call reads only the added entries.

    A rewritten manifest has fewer entries, so the last known entry lies elsewhere in it; then the
    whole file is read again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._extents: dict[int, Extent] = {}
        self._last = b""
        self._position = 0

    @property
    def entry_bytes(self) -> int:
        """Number of bytes that hold whole entries."""
        return self._position

    def extents(self) -> list[Extent]:
        """Return the last entry of each segment, oldest segment first.

        A killed writer leaves a torn entry at the end. Sound entries after a bad one mean that the
        file was damaged later, and raise `DamagedLog`.
        """
        try:
            with self._path.open("rb") as file:
                self._read_on(file)
        except FileNotFoundError:
            self._forget()
        return [self._extents[first] for first in sorted(self._extents)]

    def _read_on(self, file: BinaryIO) -> None:
        file.seek(max(0, self._position - ENTRY_BYTES))
        if file.read(len(self._last)) != self._last:
            self._forget()
            file.seek(0)
        data = file.read()
        for position in range(0, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES):
            entry = data[position : position + ENTRY_BYTES]
            if not _is_sound(entry):
                _check_torn_only(data, position, self._position, self._path)
                break
            extent = _decode_extent(entry)
            self._extents[extent.first_record] = extent
            self._last = entry
            self._position += ENTRY_BYTES

    def _forget(self) -> None:
        self._extents = {}
        self._last = b""
        self._position = 0


def read_extents(path: Path) -> tuple[list[Extent], int]:
    """Return the last entry of each segment, oldest first, and the bytes of whole entries."""
    reader = ManifestReader(path)
    return reader.extents(), reader.entry_bytes


def _decode_extent(entry: bytes) -> Extent:
    first, end, end_byte, began_ns, earliest_ns, latest_ns, is_closed, _ = _ENTRY.unpack_from(entry)
    return Extent(first, end, end_byte, began_ns, earliest_ns, latest_ns, is_closed=bool(is_closed))


def _is_sound(entry: bytes) -> bool:
    (checksum,) = _CHECKSUM.unpack_from(entry, _ENTRY.size)
    return bool(checksum == crc32(entry[: _ENTRY.size]))


def _check_torn_only(data: bytes, position: int, in_file: int, path: Path) -> None:
    later = range(position + ENTRY_BYTES, len(data) - ENTRY_BYTES + 1, ENTRY_BYTES)
    if any(_is_sound(data[each : each + ENTRY_BYTES]) for each in later):
        raise DamagedLog(f"{path} has a damaged entry at byte {in_file}")


def rewrite(path: Path, extents: Iterable[Extent]) -> None:
    """Replace the manifest atomically by one with these entries."""
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        file.writelines(encode_extent(extent) for extent in extents)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring new, renamed and removed names of a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
