"""Rollup: counts and statistics of each stream in each window of event time (second, minute, hour).

A silent stream has a row with count 0 in every window in which it had a slot due and any other
stream has events. A window without any event has no rows, for then the recorder was away.
Percentiles are exact; Spark's own exact aggregation has a third of the speed.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from gridstat.model.due_slots import due_between
from gridstat.model.rate_law import Period
from gridstat.pipeline.file_rows import FileRows, is_in_share, share_of
from gridstat.pipeline.schemas import ROLLUP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from pyspark.sql import DataFrame

INPUT: Final = ("stream", "created_ns", "received_ns", "sequence", "value")
"""Columns of good events; streams come as `known_streams` gives them."""
OUTPUT: Final = f"{ROLLUP}, day date"
MEASURED: Final = (
    "stream int, start_ns bigint, count bigint, mean double, minimum double, maximum double, "
    "deviation double, p95 double, first double, last double, latency_ms_mean double, "
    "latency_ms_max double"
)
CORE_OUTPUT: Final = (
    "stream int, window_start timestamp, count bigint, mean double, minimum double, maximum double"
)
NS_PER_S: Final = 1_000_000_000
NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1e6
NS_PER_DAY: Final = 86_400 * NS_PER_S
P95: Final = 0.95
_MEASURED: Final = pa.schema(
    [
        ("stream", pa.int32()),
        ("start_ns", pa.int64()),
        ("count", pa.int64()),
        *((each.split()[0], pa.float64()) for each in MEASURED.split(", ")[3:]),
    ]
)


def rollup(shares: DataFrame, events: FileRows, window_s: int) -> DataFrame:
    """Return the received events by window, with the columns `MEASURED`; `in_shares` makes the
    shares."""
    work = partial(measure_share, events=events, window_ns=window_s * NS_PER_S)
    return shares.mapInArrow(work, MEASURED)


def measure_share(
    batches: Iterable[pa.RecordBatch], *, events: FileRows, window_ns: int
) -> Iterator[pa.RecordBatch]:
    """A row for each window and stream of a share; runs in a task."""
    given = share_of(batches)
    if given is None:
        return
    parts = list(events.read(INPUT, lambda streams: is_in_share(streams, *given)))
    if parts:
        yield from measure(pa.concat_tables(parts), window_ns).to_batches()


def rollup_core(events: DataFrame, window_s: int, *, delay_s: float = 2.0) -> DataFrame:
    """Count, mean, minimum and maximum only, by Spark's own windows: also over a stream."""
    in_time = events.withWatermark("created", f"{delay_s} seconds")
    windowed = in_time.groupBy("stream", F.window("created", f"{window_s} seconds"))
    summed = windowed.agg(
        F.count("value").alias("count"),
        F.avg("value").alias("mean"),
        F.min("value").alias("minimum"),
        F.max("value").alias("maximum"),
    )
    return summed.select(
        "stream",
        F.col("window.start").alias("window_start"),
        "count",
        "mean",
        "minimum",
        "maximum",
    )


def measure(rows: pa.Table, window_ns: int) -> pa.Table:
    """Return one row for each window and stream."""
    columns = {name: rows.column(name).to_numpy() for name in INPUT}
    order = np.lexsort((columns["sequence"], columns["created_ns"], columns["stream"]))
    columns = {name: column[order] for name, column in columns.items()}
    measured = (
        _measures(columns, window_ns) if len(order) else {name: [] for name in _MEASURED.names}
    )
    return pa.table(measured, schema=_MEASURED)


def _measures(columns: dict[str, NDArray[Any]], window_ns: int) -> dict[str, Any]:
    """Return the measures of rows that are in the order of stream and time."""
    stream, created_ns, value = columns["stream"], columns["created_ns"], columns["value"]
    start_ns = created_ns - created_ns % window_ns
    is_first = np.ones(len(stream), dtype=bool)
    is_first[1:] = (stream[1:] != stream[:-1]) | (start_ns[1:] != start_ns[:-1])
    firsts = np.flatnonzero(is_first)
    counts = np.diff(firsts, append=len(stream))
    means = np.add.reduceat(value, firsts) / counts
    group = np.repeat(np.arange(len(firsts)), counts)
    squares = np.add.reduceat((value - means[group]) ** 2, firsts)
    ranked = _ranked(value, firsts, counts)
    latency_ms = (columns["received_ns"] - created_ns) / NS_PER_MS
    return {
        "stream": stream[firsts],
        "start_ns": start_ns[firsts],
        "count": counts,
        "mean": _or_null(means),
        "minimum": _or_null(ranked[firsts]),
        "maximum": _or_null(ranked[firsts + counts - 1]),
        "deviation": _or_null(np.sqrt(squares / np.where(counts > 1, counts - 1, np.nan))),
        "p95": _or_null(_percentile(ranked, firsts, counts, P95)),
        "first": _or_null(value[firsts]),
        "last": _or_null(value[firsts + counts - 1]),
        "latency_ms_mean": np.add.reduceat(latency_ms, firsts) / counts,
        "latency_ms_max": np.maximum.reduceat(latency_ms, firsts),
    }


def _ranked(
    values: NDArray[np.float64], firsts: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The values of each window from the least to the most; windows of one size all at once."""
    ranked = np.empty_like(values)
    for size in np.unique(counts):
        places = firsts[counts == size][:, np.newaxis] + np.arange(size)
        ranked[places] = np.sort(values[places], axis=1)
    return ranked


def _or_null(numbers: NDArray[np.float64]) -> pa.Array:
    """Values that are no numbers are null: of a stream of another type, or of too few events."""
    return pa.array(numbers, mask=np.isnan(numbers))


def _percentile(
    ranked: NDArray[np.float64],
    firsts: NDArray[np.int64],
    counts: NDArray[np.int64],
    share: float,
) -> NDArray[np.float64]:
    """Linear between the two nearest ranks."""
    place = share * (counts - 1)
    below = place.astype(np.int64)
    above = np.minimum(below + 1, counts - 1)
    low, high = ranked[firsts + below], ranked[firsts + above]
    found: NDArray[np.float64] = low + (high - low) * (place - below)
    return found


def complete(measured: pa.Table, streams: pa.Table, window_s: int) -> pa.Table:
    """Add the expected counts and the silent streams to the columns of the rollup tables.

    All events of a window must be there, since only then the silent streams are known.
    """
    if not measured.num_rows:
        return _finished(measured, {}, window_s)
    numbers, starts = (measured.column(name).to_pylist() for name in ("stream", "start_ns"))
    received = set(zip(numbers, starts, strict=True))
    # Every life of the recorder leaves streams that are over; they cost no window anything.
    first_ns, end_ns = min(starts), max(starts) + window_s * NS_PER_S
    is_held = pc.and_(
        pc.less(streams.column("since_ns"), end_ns),
        pc.greater(streams.column("until_ns"), first_ns),
    )
    held = {row["stream"]: row for row in streams.filter(is_held).to_pylist()}
    is_heard = pc.is_in(streams.column("stream"), pc.unique(measured.column("stream")))
    known = held | {row["stream"]: row for row in streams.filter(is_heard).to_pylist()}
    silent = [
        (number, start_ns)
        for start_ns in sorted(set(starts))
        for number, stream in held.items()
        if (number, start_ns) not in received and expected(stream, start_ns, window_s)
    ]
    quiet = pa.table(
        {
            "stream": pa.array([number for number, _ in silent], pa.int32()),
            "start_ns": pa.array([start_ns for _, start_ns in silent], pa.int64()),
            "count": pa.array([0] * len(silent), pa.int64()),
        }
    )
    measured = pa.concat_tables([measured, quiet], promote_options="default")
    return _finished(measured, known, window_s)


def expected(stream: dict[str, Any], start_ns: int, window_s: int) -> int | None:
    """Slots due in a window, as long as the stream was there; None if it has no period."""
    if stream["period_seconds"] is None:
        return None
    return _due(
        max(start_ns, stream["since_ns"]),
        min(start_ns + window_s * NS_PER_S, stream["until_ns"]),
        stream["period_seconds"],
        stream["period_per_seconds"],
        stream["every"],
        stream["phase_ns"],
    )


@lru_cache(maxsize=65_536)
def _due(
    from_ns: int, to_ns: int, seconds: int, per_seconds: int, every: int, phase_ns: int
) -> int:
    period = Period(seconds, per_seconds)
    return due_between(from_ns, to_ns, period, every=every, phase_ns=phase_ns)


def _finished(measured: pa.Table, known: dict[int, dict[str, Any]], window_s: int) -> pa.Table:
    numbers = measured.column("stream").to_pylist()
    start_ns = measured.column("start_ns").to_numpy()
    counts = measured.column("count").to_pylist()
    due = [
        expected(known[number], start, window_s)
        for number, start in zip(numbers, start_ns.tolist(), strict=True)
    ]
    share = [min(1.0, n / m) if m else None for n, m in zip(counts, due, strict=True)]
    columns = {name: measured.column(name) for name in measured.column_names}
    columns |= {
        "variable": pa.array([known[number]["variable"] for number in numbers], pa.string()),
        "window_start": pa.array(start_ns // NS_PER_US).cast(pa.timestamp("us", tz="UTC")),
        "window_s": pa.array(np.full(len(numbers), window_s, np.int32)),
        "expected": pa.array(due, pa.int64()),
        "completeness": pa.array(share, pa.float64()),
        "day": pa.array((start_ns // NS_PER_DAY).astype(np.int32)).cast(pa.date32()),
    }
    return pa.table({name.split()[0]: columns[name.split()[0]] for name in OUTPUT.split(", ")})
