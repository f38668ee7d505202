"""Reader of a log that may be written at the same time: the part listed in the manifest.

A position in a log is the number of a record at which a frame begins. It stays valid after a
restart, a rotation, and the removal of older segments.
"""

from __future__ import annotations

import mmap
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gridstat.model.errors import DamagedLog, RecordsGone
from gridstat.record.manifest import MANIFEST_FILE, ManifestReader
from gridstat.record.segment import (
    ALIGNMENT,
    Frame,
    decode_frame,
    decode_head,
    frame_at,
    frames,
    segment_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa

    from gridstat.record.manifest import Extent
    from gridstat.record.record_kinds import RecordKind

_EARLIEST_NS: Final = -(1 << 63)
_LATEST_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Slice:
    """Consecutive frames of one segment, with all that a reader on another machine needs."""

    segment: int
    start_byte: int
    end_byte: int
    first_record: int
    end_record: int

    @property
    def records(self) -> int:
        return self.end_record - self.first_record


class LogReader:
    """One log, read only.

    The positions of the last requested frames are cached, so that a sequential reader, such as a
    stream, examines each frame once and caches only the following ones.
    """

    def __init__(self, folder: Path, kind: RecordKind) -> None:
        self._folder = folder / kind.name
        self._kind = kind
        self._manifest = ManifestReader(self._folder / MANIFEST_FILE)
        self._frames: dict[int, list[Frame]] = {}

    def extents(self) -> list[Extent]:
        """Return the valid extents of the segments, oldest first."""
        return self._manifest.extents()

    def ends(self) -> tuple[int, int]:
        """Return the number of the oldest record, and the number after the newest."""
        extents = self.extents()
        return (extents[0].first_record, extents[-1].end_record) if extents else (0, 0)

    def began_ns(self, position: int) -> int:
        """Return when the segment at or before this position began; 0 if it was removed.

        A different time reveals another log in the same folder.
        """
        for extent in reversed(self.extents()):
            if extent.first_record < position <= extent.end_record:
                return extent.began_ns
        return 0

    def position_after(self, start: int, records_max: int) -> int:
        """Return the last position at most `records_max` records on; at least one frame on."""
        assert records_max > 0
        extents = self._from(start)
        for extent in extents:
            if extent.end_record - start < records_max and extent is not extents[-1]:
                continue
            ends = [frame.end_record for frame in self._frames_of(extent)]
            within = bisect_right(ends, start + records_max)
            if within and ends[within - 1] > start:
                return ends[within - 1]
            farther = [end for end in ends if end > start]
            before = extent.first_record
            return before if before > start else farther[0] if farther else start
        return start

    def position_at(self, record: int) -> int:
        """Return the position of the frame with this record, or the end of the log."""
        for extent in self._from(record):
            for frame in self._frames_of(extent):
                if frame.end_record > record:
                    return frame.first_record
        return self.ends()[1]

    def slices(
        self,
        start: int,
        end: int,
        records_max: int,
        *,
        earliest_ns: int = _EARLIEST_NS,
        latest_ns: int = _LATEST_NS,
    ) -> list[Slice]:
        """Return the frames between two positions as slices of at most `records_max` records.

        A slice lies in one segment. Frames without a record between the two times are left out.
        Without times, raise unless the frames hold exactly these records.
        """
        is_whole = (earliest_ns, latest_ns) == (_EARLIEST_NS, _LATEST_NS)
        found: list[Slice] = []
        for extent in self._from(start):
            if extent.first_record >= end:
                break
            if extent.latest_ns < earliest_ns or extent.earliest_ns > latest_ns:
                continue
            kept = [
                frame
                for frame in _between(self._frames_of(extent), start, end)
                if frame.latest_ns >= earliest_ns and frame.earliest_ns <= latest_ns
            ]
            found += _slices(extent.first_record, kept, records_max)
        if is_whole and sum(piece.records for piece in found) != end - start:
            raise DamagedLog(
                f"{self._folder} does not hold exactly the records {start:,} to {end:,}",
                hint="this may be another log than the one that the numbers are from",
            )
        return found

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """Yield the batches of a slice, each after a check of its checksum."""
        name = segment_name(piece.segment)
        with self._mapped(piece.segment, piece.end_byte) as data:
            decode_head(data[:ALIGNMENT], self._kind, name)
            position, record = piece.start_byte, piece.first_record
            while position < piece.end_byte:
                frame = frame_at(data, position, piece.end_byte, name)
                if frame.first_record != record:
                    raise DamagedLog(f"{name} lacks records from {record} on")
                yield decode_frame(data, frame, self._kind, name)
                position, record = frame.end, frame.end_record

    def _from(self, start: int) -> list[Extent]:
        extents = self.extents()
        if extents and start < extents[0].first_record:
            raise RecordsGone(
                f"{self._folder} begins at record {extents[0].first_record:,}, not at {start:,}"
            )
        following = [extent for extent in extents if extent.end_record > start]
        first = following[0].first_record if following else start
        for segment in [segment for segment in self._frames if segment < first]:
            del self._frames[segment]
        return following

    def _frames_of(self, extent: Extent) -> list[Frame]:
        known = self._frames.setdefault(extent.first_record, [])
        position = known[-1].end if known else ALIGNMENT
        if position < extent.end_byte:
            name = segment_name(extent.first_record)
            with self._mapped(extent.first_record, extent.end_byte) as data:
                decode_head(data[:ALIGNMENT], self._kind, name)
                known += frames(data, position, extent.end_byte, name)
        if known and known[-1].end_record != extent.end_record:
            raise DamagedLog(
                f"{segment_name(extent.first_record)} ends at record {known[-1].end_record:,}, and "
                f"the manifest says {extent.end_record:,}"
            )
        return known

    @contextmanager
    def _mapped(self, segment: int, end_byte: int) -> Iterator[memoryview]:
        path = self._folder / segment_name(segment)
        try:
            with path.open("rb") as file:
                size = path.stat().st_size
                if size < end_byte:
                    raise DamagedLog(f"{path} has {size:,} bytes instead of {end_byte:,}")
                # Not closed here: batches refer to the map and keep it open.
                yield memoryview(mmap.mmap(file.fileno(), end_byte, prot=mmap.PROT_READ))
        except FileNotFoundError as error:
            raise RecordsGone(f"{path} is not there any more") from error


def _between(known: list[Frame], start: int, end: int) -> list[Frame]:
    """Return the frames that begin at or after one record and before another."""
    first = bisect_left(known, start, key=lambda frame: frame.first_record)
    return known[first : bisect_left(known, end, key=lambda frame: frame.first_record)]


def _slices(segment: int, kept: list[Frame], records_max: int) -> Iterator[Slice]:
    start = 0
    for index in range(1, len(kept) + 1):
        records = kept[index - 1].end_record - kept[start].first_record
        if (
            index == len(kept)
            or kept[index].first_record != kept[index - 1].end_record
            or records + kept[index].records > records_max
        ):
            first, last = kept[start], kept[index - 1]
            yield Slice(segment, first.position, last.end, first.first_record, last.end_record)
            start = index
