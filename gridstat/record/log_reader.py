"""Reads a log while it is written: what the manifest names, and nothing beyond.

A place in a log is the number of a record at which a frame begins; it means the same after a
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

_LONG_AGO_NS: Final = -(1 << 63)
_FAR_AWAY_NS: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class Slice:
    """Neighbouring frames of one segment: what a reader on another machine needs to know."""

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

    Remembers where the frames lie of what was last asked for, so that who reads on from place to
    place, as a stream does, looks at each frame once and holds only those to come.
    """

    def __init__(self, folder: Path, kind: RecordKind) -> None:
        self._folder = folder / kind.name
        self._kind = kind
        self._manifest = ManifestReader(self._folder / MANIFEST_FILE)
        self._frames: dict[int, list[Frame]] = {}

    def extents(self) -> list[Extent]:
        """The segments and how far they count, oldest first."""
        return self._manifest.extents()

    def ends(self) -> tuple[int, int]:
        """The number of the oldest record that is still here, and the one after the newest."""
        extents = self.extents()
        return (extents[0].first_record, extents[-1].end_record) if extents else (0, 0)

    def began_ns(self, place: int) -> int:
        """When the segment began that ends at this place or goes on there; 0 if it is gone.

        By that another log in the same folder is found out.
        """
        for extent in reversed(self.extents()):
            if extent.first_record < place <= extent.end_record:
                return extent.began_ns
        return 0

    def place_after(self, start: int, records_max: int) -> int:
        """The farthest place at most so many records after `start`; at least one frame on."""
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

    def place_at(self, record: int) -> int:
        """Where the frame begins that holds this record, or the end of the log."""
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
        earliest_ns: int = _LONG_AGO_NS,
        latest_ns: int = _FAR_AWAY_NS,
    ) -> list[Slice]:
        """The frames from one place to another, cut at segments and after so many records.

        Frames with no record between the two times are left out; a frame that has one is whole.
        Without times, the frames are all of those records, or it raises.
        """
        is_whole = (earliest_ns, latest_ns) == (_LONG_AGO_NS, _FAR_AWAY_NS)
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
            found += _cut(extent.first_record, kept, records_max)
        if is_whole and sum(piece.records for piece in found) != end - start:
            raise DamagedLog(
                f"{self._folder} does not hold exactly the records {start:,} to {end:,}",
                hint="this may be another log than the one that the numbers are from",
            )
        return found

    def read(self, piece: Slice) -> Iterator[pa.RecordBatch]:
        """The batches of a slice, each checked before it is handed out."""
        name = segment_name(piece.segment)
        with self._mapped(piece.segment, piece.end_byte) as data:
            decode_head(data[:ALIGNMENT], self._kind, name)
            position = piece.start_byte
            while position < piece.end_byte:
                frame = frame_at(data, position, piece.end_byte, name)
                yield decode_frame(data, frame, self._kind, name)
                position = frame.end

    def _from(self, start: int) -> list[Extent]:
        extents = self.extents()
        if extents and start < extents[0].first_record:
            raise RecordsGone(
                f"{self._folder} begins at record {extents[0].first_record:,}, not at {start:,}"
            )
        to_come = [extent for extent in extents if extent.end_record > start]
        first = to_come[0].first_record if to_come else start
        for segment in [segment for segment in self._frames if segment < first]:
            del self._frames[segment]
        return to_come

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
                # Not closed here: batches keep the map alive as long as anybody holds them.
                yield memoryview(mmap.mmap(file.fileno(), end_byte, prot=mmap.PROT_READ))
        except FileNotFoundError as error:
            raise RecordsGone(f"{path} is not there any more") from error


def _between(known: list[Frame], start: int, end: int) -> list[Frame]:
    """The frames that begin from one record on and before another."""
    first = bisect_left(known, start, key=lambda frame: frame.first_record)
    return known[first : bisect_left(known, end, key=lambda frame: frame.first_record)]


def _cut(segment: int, kept: list[Frame], records_max: int) -> Iterator[Slice]:
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
