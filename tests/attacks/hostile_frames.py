"""Reads forged frames, as a process of its own: a reader that crashes must not end the tests.

`python -m tests.attacks.hostile_frames SEED COUNT` prints how many were refused and how many read.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from collections import Counter
from zlib import crc32

import pyarrow as pa

from gridstat.model.errors import DamagedLog
from gridstat.record.record_kinds import EVENTS, STREAMS, RecordKind
from gridstat.record.segment import ALIGNMENT, decode_frame, encode_frame, frame_at, padded

HEAD = ALIGNMENT - 4
ROWS = 5
WORDS = (-1, 2**31 - 1, -(2**31), 1, 2**20, 2**28)


def main(seed: int, count: int) -> None:
    chosen = random.Random(seed)
    found: Counter[str] = Counter()
    for number in range(count):
        kind = (EVENTS, STREAMS)[number % 2]
        found[outcome(forged(chosen, kind), kind)] += 1
    print(json.dumps(found))  # noqa: T201 - It is what the test reads.


def forged(chosen: random.Random, kind: RecordKind) -> memoryview:
    """A frame with some of its body changed, and a checksum that fits."""
    frame = bytearray(b"".join(encode_frame(batch(kind), kind, 0)))
    (size,) = struct.unpack_from("<I", frame)
    for _ in range(chosen.choice((1, 1, 2, 4))):
        if chosen.random() < 0.5:
            at = ALIGNMENT + chosen.randrange(size // 4) * 4
            struct.pack_into("<i", frame, at, chosen.choice(WORDS))
        else:
            frame[ALIGNMENT + chosen.randrange(size)] = chosen.randrange(256)
    body = frame[ALIGNMENT : ALIGNMENT + size]
    struct.pack_into("<I", frame, HEAD, crc32(body, crc32(frame[:HEAD])))
    assert len(frame) == ALIGNMENT + padded(size)
    return memoryview(bytes(frame))


def outcome(data: memoryview, kind: RecordKind) -> str:
    """Return the name of the exception, or `read` once every value has been looked at."""
    try:
        found = decode_frame(data, frame_at(data, 0, len(data), "forged"), kind, "forged")
        for column in found.columns:
            column.to_pylist()
    except DamagedLog:
        return "DamagedLog"
    except Exception as error:
        return type(error).__name__
    return "read"


def batch(kind: RecordKind) -> pa.RecordBatch:
    columns = [
        pa.array([_value(field.type, at) for at in range(ROWS)], field.type)
        for field in kind.schema
    ]
    return pa.record_batch(columns, schema=kind.schema)


def _value(data_type: pa.DataType, at: int) -> object:
    if pa.types.is_string(data_type):
        return f"c1/é/{at}"
    if pa.types.is_binary(data_type):
        return bytes(at)
    return bool(at % 2) if pa.types.is_boolean(data_type) else at


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
