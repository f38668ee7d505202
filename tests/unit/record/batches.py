"""Batches of made-up events for the tests of the log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from gridstat.record.record_kinds import EVENTS

BEGAN_NS = 1_700_000_000_000_000_000


def events(first: int, count: int) -> pa.RecordBatch:
    """Return so many events whose `word` counts on from `first`."""
    numbers = np.arange(first, first + count)
    return pa.record_batch(
        [
            pa.array((numbers % 7).astype(np.int32)),
            pa.array(BEGAN_NS + numbers * 1_000),
            pa.array(BEGAN_NS + numbers * 1_000 + 500),
            pa.array((numbers % 65_536).astype(np.int32)),
            pa.array(np.zeros(count, np.int16)),
            pa.array(numbers.astype(np.int64)),
            pa.array([b"x" * (number % 3) if number % 5 else None for number in numbers.tolist()]),
        ],
        schema=EVENTS.schema,
    )


def words(batches: list[pa.RecordBatch]) -> list[int]:
    """Return the numbers that `events` had counted."""
    return [word for batch in batches for word in batch.column("word").to_pylist()]
