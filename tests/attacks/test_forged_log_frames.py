"""Attack: a segment of a log whose Arrow offsets lead out of it, with checksums that fit.

A reader that follows such an offset reads foreign memory, or dies. Each forged frame is either
`DamagedLog` or can be read to its last value, whatever was changed in it.
"""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pytest

from gridstat.model.errors import DamagedLog
from gridstat.record.record_kinds import EVENTS, STREAMS
from gridstat.record.segment import ALIGNMENT, decode_frame, encode_frame, frame_at
from tests.attacks.hostile_frames import HEAD, ROWS, batch

ROOT = Path(__file__).parents[2]
FORGED = 1_500


@pytest.mark.parametrize("seed", range(3))
def test_forged_frames_are_refused_or_readable_and_crash_nobody(seed: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "tests.attacks.hostile_frames", str(seed), str(FORGED)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"the reader ended by {ran.returncode}: {ran.stderr[-400:]}"
    found = json.loads(ran.stdout)
    assert found.keys() == {"DamagedLog", "read"}
    assert sum(found.values()) == FORGED
    assert found["DamagedLog"] > FORGED / 2


def test_an_offset_beyond_the_texts_is_damage() -> None:
    whole = b"".join(encode_frame(batch(STREAMS), STREAMS, 0))
    offsets = struct.pack("<6i", *range(0, 42, 7))  # Of `c1/é/0` and its four followers.
    assert offsets in whole
    for at in range(1, 6):
        frame = bytearray(whole)
        struct.pack_into("<i", frame, whole.index(offsets) + 4 * at, 2**30)
        with pytest.raises(DamagedLog, match=r"x, byte 0: .*offset"):
            read_again(frame)


def test_letters_that_are_no_text_are_damage() -> None:
    frame = bytearray(b"".join(encode_frame(batch(STREAMS), STREAMS, 0)))
    at = frame.index("c1/é/0".encode())
    frame[at] = 0xFF
    with pytest.raises(DamagedLog, match="UTF8"):
        read_again(frame)


def test_a_missing_value_where_none_may_be_missing_is_damage() -> None:
    sound = batch(EVENTS)
    words = pa.array([1, None, 3, 4, 5], pa.int64())
    columns = [*sound.columns[:5], words, sound.columns[6]]
    body = pa.record_batch(columns, names=EVENTS.schema.names).serialize()
    frame = bytearray(b"".join(encode_frame(sound, EVENTS, 0))[:ALIGNMENT]) + bytearray(body)
    struct.pack_into("<I", frame, 0, len(body))
    with pytest.raises(DamagedLog, match="word is missing in 1 records"):
        read_again(frame, EVENTS)


def test_times_that_are_not_those_of_the_records_are_damage() -> None:
    frame = bytearray(b"".join(encode_frame(batch(EVENTS), EVENTS, 0)))
    struct.pack_into("<q", frame, 24, 2**62)
    with pytest.raises(DamagedLog, match="times"):
        read_again(frame, EVENTS)


@pytest.mark.parametrize("codec", ["lz4", "zstd"])
@pytest.mark.parametrize("mark", ["today", "Arrow 0.17"])
def test_a_compressed_body_is_damage_before_it_is_expanded(codec: str, mark: str) -> None:
    """A recorder compresses nothing, and some kilobytes could expand to gigabytes."""
    empty = [bytes(100_000)] * ROWS
    columns = [*batch(EVENTS).columns[:-1], pa.array(empty, EVENTS.schema.types[-1])]
    expanded = pa.record_batch(columns, schema=EVENTS.schema)
    if mark == "today":
        body = compressed(expanded, codec)
    else:
        attributes = {"ARROW:experimental_compression": codec}
        body = without_mark_of_today(compressed(expanded, codec, attributes))
    assert len(body) < 5_000
    stream = EVENTS.schema.serialize().to_pybytes() + body
    in_one_thread = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.ipc.open_stream(stream, options=in_one_thread) as reader:
        assert reader.read_next_batch().nbytes > 100_000 * ROWS
    start = 8 + struct.unpack_from("<I", body, 4)[0]
    ruined = body[:start] + b"\xff" * (len(body) - start)  # Nobody could expand it.
    head = b"".join(encode_frame(expanded, EVENTS, 0))[:ALIGNMENT]
    for each in (body, ruined):
        frame = bytearray(head + each)
        struct.pack_into("<I", frame, 0, len(each))
        with pytest.raises(DamagedLog, match="compressed, as no recorder writes it"):
            read_again(frame, EVENTS)


def compressed(
    contents: pa.RecordBatch, codec: str, attributes: dict[str, str] | None = None
) -> bytes:
    """Return a batch as no recorder writes it."""
    stream = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=codec, use_threads=False)
    with pa.ipc.new_stream(stream, contents.schema, options=options) as writer:
        writer.write_batch(contents, custom_metadata=attributes)
    _schema, message = pa.ipc.MessageReader.open_stream(stream.getvalue())
    found: bytes = message.serialize().to_pybytes()
    return found


def without_mark_of_today(body: bytes) -> bytes:
    """Return the body as Arrow 0.17 wrote it, with the codec in its attributes alone."""
    forged = bytearray(body)

    def slot_of(table: int, number: int) -> int:
        (back,) = struct.unpack_from("<i", forged, table)
        return table - int(back) + 4 + 2 * number

    def field_of(table: int, number: int) -> int:
        (offset,) = struct.unpack_from("<H", forged, slot_of(table, number))
        return table + int(offset)

    start = 8  # Of the table of the message: after the continuation mark and the length.
    table = start + struct.unpack_from("<I", forged, start)[0]
    header = field_of(table, 2)
    header += struct.unpack_from("<I", forged, header)[0]
    struct.pack_into("<h", forged, field_of(table, 0), 3)  # Version 4 of the metadata.
    struct.pack_into("<H", forged, slot_of(header, 3), 0)  # No field with today's mark.
    return bytes(forged)


def test_a_mark_of_the_end_instead_of_a_batch_is_damage() -> None:
    body = b"\xff\xff\xff\xff\0\0\0\0"
    frame = bytearray(b"".join(encode_frame(batch(EVENTS), EVENTS, 0))[:ALIGNMENT] + body)
    struct.pack_into("<I", frame, 0, len(body))
    with pytest.raises(DamagedLog, match="byte 0"):
        read_again(frame, EVENTS)


def read_again(frame: bytearray, kind: object = STREAMS) -> None:
    """Read a frame whose checksum has been made to fit."""
    (size,) = struct.unpack_from("<I", frame)
    body = frame[ALIGNMENT : ALIGNMENT + size]
    struct.pack_into("<I", frame, HEAD, crc32(body, crc32(frame[:HEAD])))
    frame += bytes(-len(frame) % ALIGNMENT)
    data = memoryview(bytes(frame))
    assert kind in {EVENTS, STREAMS}
    chosen = EVENTS if kind is EVENTS else STREAMS
    decode_frame(data, frame_at(data, 0, len(data), "x"), chosen, "x")
