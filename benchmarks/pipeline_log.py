"""Logs for the pipeline to read: of a given length at once, or at the pace of a running grid.

`python -m benchmarks.pipeline_log FOLDER STREAMS RATE SWINGING` feeds until its stdin closes: every
stream has an event in every slot, stamped with the slot's own instant, and is on the disk as soon
as a recorder would have it there.
"""

from __future__ import annotations

import select
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from benchmarks.roles.conversation import print_answer
from gridstat.record.log_settings import LogSettings, RecorderSettings
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS, STREAMS
from gridstat.record.segment import FRAME_RECORDS_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

NS_PER_S: Final = 1_000_000_000
BEGAN_S: Final = 1_700_000_000
LATENCY_NS: Final = 800_000
SEQUENCES: Final = 65_536
BYTES_MAX: Final = 64 << 30
TICK_SHARE: Final = 0.5


def record_streams(folder: Path, streams: int, rate: int, *, since_s: int = BEGAN_S) -> None:
    rows = [
        {
            "stream": number,
            "since_ns": since_s * NS_PER_S,
            "variable": f"c1/area-{number % 10}/pmu-{number}/frequency",
            "value_type": "float64",
            "period_seconds": 1,
            "period_per_seconds": rate,
            "phase_ns": 0,
            "every": 1,
            "subscription": number,
        }
        for number in range(streams)
    ]
    with LogWriter(folder, STREAMS, now_ns=time.time_ns) as log:
        log.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))


def record_log(folder: Path, rows: int, *, streams: int, rate: int) -> None:
    """Record so many events, slot by slot, all streams in each."""
    record_streams(folder, streams, rate)
    settings = LogSettings(log_bytes_max=BYTES_MAX)
    with LogWriter(folder, EVENTS, now_ns=time.time_ns, settings=settings) as log:
        for first in range(0, rows, FRAME_RECORDS_MAX):
            numbers = np.arange(first, min(first + FRAME_RECORDS_MAX, rows))
            slots = BEGAN_S * rate + numbers // streams
            log.append(events(numbers % streams, slots, rate))


def events(
    stream: NDArray[np.int64], slots: NDArray[np.int64], rate: int, swinging: int = 0
) -> pa.RecordBatch:
    """Return one event of each stream in its slot: a wave around 60, different in every stream.

    The first `swinging` streams swing enough for an alarm.
    """
    created_ns = slots // rate * NS_PER_S + slots % rate * NS_PER_S // rate
    amplitude = np.where(stream < swinging, 0.05, 0.005)
    value = 60.0 + amplitude * np.sin(slots / 17.0 + stream)
    columns = {
        "stream": stream.astype(np.int32),
        "created_ns": created_ns,
        "received_ns": created_ns + LATENCY_NS + stream * 100,
        "sequence": (slots % SEQUENCES).astype(np.int32),
        "flags": np.zeros(len(stream), np.int16),
        "word": value.view(np.int64),
    }
    arrays = [pa.array(column) for column in columns.values()]
    return pa.record_batch([*arrays, pa.nulls(len(stream), pa.binary())], schema=EVENTS.schema)


def feed(folder: Path, streams: int, rate: int, swinging: int) -> int:
    """Write at the grid's own pace until stdin closes; return the number of events."""
    sync_s = RecorderSettings().sync_s
    stream = np.arange(streams)
    slot = time.time_ns() * rate // NS_PER_S + 1
    synced_s = time.monotonic()
    with LogWriter(folder, EVENTS, now_ns=time.time_ns) as log:
        print_answer({"ready": True})
        while not select.select([sys.stdin], [], [], TICK_SHARE / rate)[0]:
            due = time.time_ns() * rate // NS_PER_S
            while slot <= due:
                log.append(events(stream, np.full(streams, slot), rate, swinging))
                slot += 1
            if time.monotonic() - synced_s >= sync_s:
                log.sync()
                synced_s = time.monotonic()
        return log.appended


if __name__ == "__main__":
    place, *numbers = sys.argv[1:]
    streams_given, rate_given, swinging_given = map(int, numbers)
    print_answer({"fed": feed(Path(place), streams_given, rate_given, swinging_given)})
