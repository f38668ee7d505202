"""A segment: one file of a log, a head and then frames, each a batch of records in Arrow's format.

offset | size | field of the head, little-endian
     0 |    8 | "GRIDSLOG"
     8 |    2 | version of this layout
    10 |    2 | code of the record kind
    12 |    2 | version of the record kind
    14 |    2 | 0
    16 |    8 | number of the first record
    24 |    8 | when the segment began, ns since 1970
    32 |   28 | 0
    60 |    4 | CRC-32 of the 60 bytes before

offset | size | field of a frame, little-endian
     0 |    4 | bytes of the body, without the padding to a multiple of 64
     4 |    4 | records
     8 |    8 | number of the first record
    16 |    8 | earliest time of a record, ns since 1970
    24 |    8 | latest time of a record
    32 |   28 | 0
    60 |    4 | CRC-32 of the 60 bytes before and of the body
    64 |      | the body: an encapsulated record batch of Arrow, whose schema is that of the kind

Everything lies at a multiple of 64 bytes, so a batch is read in place from a mapped file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from zlib import crc32

import pyarrow as pa

from gridstat.model.errors import DamagedLog, StorageFailed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gridstat.record.record_kinds import RecordKind

LAYOUT: Final = 1
ALIGNMENT: Final = 64
BODY_BYTES_MAX: Final = 64 * 1024 * 1024
FRAME_RECORDS_MAX: Final = 65_536
SUFFIX: Final = ".segment"
_MAGIC: Final = b"GRIDSLOG"
_HEAD: Final = struct.Struct("<8sHHHHQQ28s")
_FRAME: Final = struct.Struct("<IIQqq28s")
_CHECKSUM: Final = struct.Struct("<I")
_RESERVED: Final = bytes(28)
_OFFSET: Final = struct.Struct("<I")
_BACK: Final = struct.Struct("<i")
_SLOT: Final = struct.Struct("<H")
_HEADER_FIELD: Final = 2
_ATTRIBUTES_FIELD: Final = 4
"""Fields of Arrow's table `Message`: its header, here a `RecordBatch`, and its attributes."""
_COMPRESSION_FIELD: Final = 3
"""Field of Arrow's table `RecordBatch`."""


@dataclass(frozen=True, slots=True)
class SegmentHead:
    """Fields of the first 64 bytes."""

    kind_code: int
    kind_version: int
    first_record: int
    began_ns: int


@dataclass(frozen=True, slots=True)
class Frame:
    """Position and contents of a batch in its segment; the checksum is verified when read."""

    position: int
    body_bytes: int
    records: int
    first_record: int
    earliest_ns: int
    latest_ns: int

    @property
    def end(self) -> int:
        """Position of the next frame."""
        return self.position + ALIGNMENT + padded(self.body_bytes)

    @property
    def end_record(self) -> int:
        return self.first_record + self.records


def segment_name(first_record: int) -> str:
    return f"{first_record:020d}{SUFFIX}"


def encode_head(head: SegmentHead) -> bytes:
    fields = _HEAD.pack(
        _MAGIC,
        LAYOUT,
        head.kind_code,
        head.kind_version,
        0,
        head.first_record,
        head.began_ns,
        _RESERVED,
    )
    return fields + _CHECKSUM.pack(crc32(fields))


def decode_head(data: bytes | memoryview, kind: RecordKind, name: str) -> SegmentHead:
    """Return the head; raise unless it is of this kind and this release can read it."""
    if len(data) < ALIGNMENT:
        raise DamagedLog(f"{name} ends within its head")
    magic, layout, code, version, _, first_record, began_ns, _ = _HEAD.unpack_from(data)
    (checksum,) = _CHECKSUM.unpack_from(data, _HEAD.size)
    if magic != _MAGIC:
        raise DamagedLog(f"{name} is no segment of a log")
    if layout > LAYOUT:
        raise _too_new(f"{name} has layout {layout}, and this release reads up to {LAYOUT}")
    if checksum != crc32(data[: _HEAD.size]):
        raise DamagedLog(f"{name} has a damaged head")
    if code != kind.code:
        raise DamagedLog(f"{name} holds records of kind {code}, not {kind.name}")
    if version > kind.version:
        raise _too_new(
            f"{name} holds {kind.name} of version {version}, and this release reads up to "
            f"{kind.version}"
        )
    return SegmentHead(code, version, first_record, began_ns)


def encode_frame(batch: pa.RecordBatch, kind: RecordKind, first_record: int) -> list[bytes]:
    """Return a batch with the kind's schema as bytes to append."""
    assert batch.schema == kind.schema
    assert 0 < batch.num_rows <= FRAME_RECORDS_MAX
    body = batch.serialize()
    times = batch.column(kind.time).to_numpy()
    fields = _FRAME.pack(
        len(body), batch.num_rows, first_record, int(times.min()), int(times.max()), _RESERVED
    )
    checksum = crc32(body, crc32(fields))
    fill = bytes(padded(len(body)) - len(body))
    return [fields + _CHECKSUM.pack(checksum), body, fill]


def frame_at(data: memoryview, position: int, end: int, name: str) -> Frame:
    """Return the frame at a position of a segment that is valid up to `end`."""
    if position + ALIGNMENT > end:
        raise DamagedLog(f"{name} ends within a frame at byte {position}")
    body_bytes, records, first_record, earliest_ns, latest_ns, _ = _FRAME.unpack_from(
        data, position
    )
    frame = Frame(position, body_bytes, records, first_record, earliest_ns, latest_ns)
    if not 0 < body_bytes <= BODY_BYTES_MAX or not 0 < records <= FRAME_RECORDS_MAX:
        raise DamagedLog(f"{name} has a damaged frame at byte {position}")
    if frame.end > end:
        raise DamagedLog(f"{name} ends within the frame at byte {position}")
    return frame


def frames(data: memoryview, start: int, end: int, name: str) -> Iterator[Frame]:
    """Yield all frames between two positions, without reading their bodies."""
    position, expected = start, None
    while position < end:
        frame = frame_at(data, position, end, name)
        if expected is not None and frame.first_record != expected:
            raise DamagedLog(f"{name} lacks records from {expected} on")
        yield frame
        position, expected = frame.end, frame.end_record


def decode_frame(data: memoryview, frame: Frame, kind: RecordKind, name: str) -> pa.RecordBatch:
    """Return the batch of a frame without copying; raise if any bit has changed.

    A checksum is no proof: whoever can write the file can write one. So Arrow's own offsets,
    lengths and texts are checked too, before a reader follows them. A compressed body is refused
    before it is expanded, as `BODY_BYTES_MAX` bounds only the bytes in the file.
    """
    start = frame.position + ALIGNMENT
    body = data[start : start + frame.body_bytes]
    (checksum,) = _CHECKSUM.unpack_from(data, frame.position + _FRAME.size)
    fields = data[frame.position : frame.position + _FRAME.size]
    if checksum != crc32(body, crc32(fields)):
        raise DamagedLog(f"{name} has a damaged frame at byte {frame.position}")
    try:
        message = pa.ipc.read_message(pa.py_buffer(body))
        if _may_be_compressed(message):
            raise DamagedLog(f"{name}, byte {frame.position}: compressed, as no recorder writes it")
        batch = pa.ipc.read_record_batch(message, kind.schema)
        batch.validate(full=True)
    except (pa.ArrowException, EOFError, OSError, MemoryError) as error:
        raise DamagedLog(f"{name}, byte {frame.position}: {error}") from error
    problem = _batch_problem(batch, frame, kind)
    if problem:
        raise DamagedLog(f"{name}, byte {frame.position}: {problem}")
    return batch


def _may_be_compressed(message: pa.ipc.Message) -> bool:
    """Return whether a message has the field for a codec, or attributes, where early versions of
    Arrow named it.

    pyarrow shows neither, so its FlatBuffers tables are read here. Arrow has verified all their
    offsets in `read_message`.
    """
    octets = memoryview(message.metadata)
    (table,) = _OFFSET.unpack_from(octets)
    if _field(octets, table, _ATTRIBUTES_FIELD):
        return True
    header = _field(octets, table, _HEADER_FIELD)
    if message.type != "record batch" or not header:
        return False  # Arrow refuses it as a batch.
    batch = header + _OFFSET.unpack_from(octets, header)[0]
    return _field(octets, batch, _COMPRESSION_FIELD) != 0


def _field(octets: memoryview, table: int, number: int) -> int:
    """Return the position of a field of a FlatBuffers table; 0 if the table has no such field."""
    slots = table - _BACK.unpack_from(octets, table)[0]
    (slots_bytes,) = _SLOT.unpack_from(octets, slots)
    slot = 2 * _SLOT.size + _SLOT.size * number
    if slot >= slots_bytes:
        return 0
    (offset,) = _SLOT.unpack_from(octets, slots + slot)
    return table + int(offset) if offset else 0


def _batch_problem(batch: pa.RecordBatch, frame: Frame, kind: RecordKind) -> str:
    """Return what a batch has that no recorder writes; empty if nothing."""
    if batch.num_rows != frame.records:
        return f"{batch.num_rows} records"
    for field, column in zip(kind.schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            return f"{field.name} is missing in {column.null_count} records"
    times = batch.column(kind.time).to_numpy()
    if (int(times.min()), int(times.max())) != (frame.earliest_ns, frame.latest_ns):
        return "its times are not those of its records"
    return ""


def padded(size: int) -> int:
    """Return the size with padding."""
    return -(-size // ALIGNMENT) * ALIGNMENT


def _too_new(message: str) -> StorageFailed:
    return StorageFailed(message, hint="read it with the release that wrote it, or a newer one")
