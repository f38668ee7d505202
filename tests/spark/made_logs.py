"""Logs made for the tests of the pipeline: streams, events, and what one asks of a log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gridstat.record.log_settings import LogSettings
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS, STREAMS

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.record_kinds import RecordKind

BEGAN_NS = 1_700_000_000_000_000_000
"""A whole second; 22:13:20 of 14 November 2023."""
NS_PER_MS = 1_000_000
SMALL = LogSettings(segment_bytes_max=100_000, log_bytes_max=100_000_000)


def open_log(folder: Path, kind: RecordKind = EVENTS) -> LogWriter:
    return LogWriter(folder, kind, now_ns=lambda: BEGAN_NS, settings=SMALL)


def variable(number: int) -> str:
    return f"c1/hill/pmu-{number}/frequency"


def record_streams(folder: Path, types: list[str], *, first: int = 0) -> None:
    """Streams of 30 events a second, each of its own type."""
    rows = [
        {
            "stream": number,
            "since_ns": BEGAN_NS,
            "variable": variable(number),
            "value_type": value_type,
            "period_seconds": 1,
            "period_per_seconds": 30,
            "phase_ns": 0,
            "every": 1,
            "subscription": 100 + number,
        }
        for number, value_type in enumerate(types, start=first)
    ]
    with open_log(folder, STREAMS) as log:
        log.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))


def events(first: int, count: int, *, streams: int = 4) -> pa.RecordBatch:
    """One event a millisecond, streams in turn; the value of record n is n / 8."""
    numbers = np.arange(first, first + count)
    created_ns = BEGAN_NS + numbers * NS_PER_MS
    return pa.record_batch(
        [
            pa.array((numbers % streams).astype(np.int32)),
            pa.array(created_ns),
            pa.array(created_ns + 500_000),
            pa.array((numbers % 65_536).astype(np.int32)),
            pa.array(np.zeros(count, np.int16)),
            pa.array((numbers / 8).view(np.int64)),
            pa.nulls(count, pa.binary()),
        ],
        schema=EVENTS.schema,
    )


def grow(log: LogWriter, frames: int, *, rows: int = 100) -> None:
    """Appends so many frames, each on the disk before the next."""
    for _ in range(frames):
        log.append(events(log.appended, rows))
        log.sync()


def segments(folder: Path, kind: RecordKind = EVENTS) -> list[Path]:
    return sorted((folder / kind.name).glob("*.segment"))
