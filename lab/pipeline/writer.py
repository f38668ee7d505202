"""A writer of the log, to be killed: events that follow from their number in the log alone.

    python -m lab.pipeline.writer LOG ROWS_PER_S

Whoever goes on after a kill writes what the one before would have written. Some events are late,
some come twice, some are nonsense.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from gridstat.record.kinds import EVENTS, STREAMS
from gridstat.record.log_writer import LogWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

BEGAN_NS = 1_700_000_000_000_000_000
NS_PER_S = 1_000_000_000
STREAMS_COUNT = 8
STEP_NS = 2_500_000
"""From one event to the next: each stream has fifty a second."""
TURN_S = 0.05
COPIES, LATE, NOT_FINITE, AHEAD, UNKNOWN = 50, 61, 97, 89, 101
"""One in so many events."""
FIRST_COPY = 1_000


def main(words: list[str]) -> None:
    log, rows_per_s = Path(words[0]), int(words[1])
    write_streams(log)
    with LogWriter(log, EVENTS, now_ns=time.time_ns) as writer:
        while True:
            writer.append(events(writer.appended, max(1, round(rows_per_s * TURN_S))))
            writer.sync()
            time.sleep(TURN_S)


def write_streams(log: Path) -> None:
    with LogWriter(log, STREAMS, now_ns=time.time_ns) as writer:
        rows = [
            {
                "stream": number,
                "since_ns": BEGAN_NS,
                "variable": f"lab/soak/pmu-{number}/frequency",
                "value_type": "float64",
                "period_seconds": 1,
                "period_per_seconds": 50,
                "phase_ns": 0,
                "every": 1,
                "subscription": number,
            }
            for number in range(writer.recorded, STREAMS_COUNT)
        ]
        if rows:
            writer.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))


def events(first: int, count: int) -> pa.RecordBatch:
    """The events with these numbers in the log."""
    number = np.arange(first, first + count)
    is_copy = _is_each(number, COPIES) & (number > FIRST_COPY)
    origin = np.where(is_copy, number - 37 - 400 * (number // COPIES % 2), number)
    created_ns = BEGAN_NS + origin * STEP_NS - np.where(_is_each(origin, LATE), 5 * NS_PER_S, 0)
    created_ns = np.maximum(created_ns, BEGAN_NS)
    value = np.where(_is_each(origin, NOT_FINITE), np.nan, 50 + np.sin(origin / 1_000.0))
    received_ns = BEGAN_NS + number * STEP_NS + 3_000_000
    created_ns = np.where(_is_each(origin, AHEAD), received_ns + 3_600 * NS_PER_S, created_ns)
    stream = np.where(_is_each(origin, UNKNOWN), STREAMS_COUNT, origin % STREAMS_COUNT)
    return pa.record_batch(
        [
            pa.array(stream.astype(np.int32)),
            pa.array(created_ns),
            pa.array(received_ns),
            pa.array((origin % 65_536).astype(np.int32)),
            pa.array(np.zeros(count, np.int16)),
            pa.array(value.view(np.int64)),
            pa.nulls(count, pa.binary()),
        ],
        schema=EVENTS.schema,
    )


def _is_each(number: NDArray[np.int64], every: int) -> NDArray[np.bool_]:
    is_one: NDArray[np.bool_] = number % every == every - 1
    return is_one


if __name__ == "__main__":
    main(sys.argv[1:])
