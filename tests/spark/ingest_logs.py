"""Events for the tests of ingest: made rows, and what the tables must hold of them.

The oracle is plain pandas over the rows as they were recorded; it knows nothing of batches.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pyarrow as pa

from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS, STREAMS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

BEGAN_S = 1_700_000_000
NS_PER_S = 1_000_000_000
PER_S = 5
"""Events of each stream a second."""


@dataclass(frozen=True, slots=True)
class Made:
    """One event."""

    stream: int
    created_ns: int
    received_ns: int
    sequence: int
    value: float
    flags: int = 0


def steady(streams: int, seconds: int, *, seed: int = 1) -> list[Made]:
    """Every stream at its slots, in order, a few milliseconds on the way."""
    random = np.random.default_rng(seed)
    rows = []
    for slot in range(seconds * PER_S):
        created_ns = BEGAN_S * NS_PER_S + slot * NS_PER_S // PER_S
        for stream in range(streams):
            received_ns = created_ns + int(random.integers(1, 30)) * 1_000_000
            rows.append(Made(stream, created_ns, received_ns, slot % 65_536, random.normal(50)))
    return rows


def disturbed(rows: list[Made], *, seed: int) -> list[Made]:
    """Some come late by up to 20 s, some out of order, some twice, some are nonsense."""
    random = np.random.default_rng(seed)
    arrivals: list[tuple[int, int, Made]] = []
    for index, row in enumerate(rows):
        fates = _fates(row, float(random.random()))
        arrivals.extend((each.received_ns, index, each) for each in fates)
    return [row for *_, row in sorted(arrivals, key=lambda arrival: arrival[:2])]


def _fates(row: Made, chance: float) -> Iterator[Made]:
    late_ns = row.received_ns + round(chance * 1e12) % (20 * NS_PER_S)
    if chance < 0.03:
        yield replace(row, received_ns=late_ns)
    elif chance < 0.06:
        yield row
        yield replace(row, received_ns=late_ns)
    elif chance < 0.07:
        yield replace(row, created_ns=row.created_ns + 3_600 * NS_PER_S)
    elif chance < 0.08:
        yield replace(row, value=float("nan"))
    elif chance < 0.09:
        yield replace(row, stream=99)
    elif chance < 0.12:
        return
    else:
        yield row


def record_streams(log: Path, streams: int) -> None:
    rows = [
        {
            "stream": number,
            "since_ns": BEGAN_S * NS_PER_S,
            "variable": f"c1/hill/pmu-{number}/frequency",
            "value_type": "float64",
            "period_seconds": 1,
            "period_per_seconds": PER_S,
            "phase_ns": 0,
            "every": 1,
            "subscription": 100 + number,
        }
        for number in range(streams)
    ]
    with LogWriter(log, STREAMS, now_ns=lambda: BEGAN_S * NS_PER_S) as writer:
        writer.append(pa.RecordBatch.from_pylist(rows, schema=STREAMS.schema))


def record_events(log: Path, rows: Iterable[Made], *, rows_per_frame: int = 100) -> None:
    made = list(rows)
    with LogWriter(log, EVENTS, now_ns=lambda: BEGAN_S * NS_PER_S) as writer:
        for start in range(0, len(made), rows_per_frame):
            writer.append(event_batch(made[start : start + rows_per_frame]))
            writer.sync()


def event_batch(rows: list[Made]) -> pa.RecordBatch:
    word = np.array([row.value for row in rows]).view(np.int64)
    return pa.record_batch(
        [
            pa.array([row.stream for row in rows], pa.int32()),
            pa.array([row.created_ns for row in rows], pa.int64()),
            pa.array([row.received_ns for row in rows], pa.int64()),
            pa.array([row.sequence for row in rows], pa.int32()),
            pa.array([row.flags for row in rows], pa.int16()),
            pa.array(word),
            pa.nulls(len(rows), pa.binary()),
        ],
        schema=EVENTS.schema,
    )


def judged(rows: list[Made], streams: int) -> pd.DataFrame:
    """Every record with the reason for which it is not in the archive, or none."""
    seen: set[tuple[int, int, int]] = set()
    reasons: list[str | None] = []
    for row in rows:
        identity = (row.stream, row.created_ns, row.sequence)
        if row.stream >= streams:
            reasons.append("unknown_stream")
        elif not -NS_PER_S <= row.received_ns - row.created_ns <= 86_400 * NS_PER_S:
            reasons.append("implausible_time")
        elif not np.isfinite(row.value):
            reasons.append("not_finite")
        else:
            reasons.append("duplicate" if identity in seen else None)
            seen.add(identity)
    frame = pd.DataFrame([[getattr(row, name) for name in Made.__slots__] for row in rows])
    frame.columns = list(Made.__slots__)
    return frame.assign(record=range(len(rows)), reason=reasons)


def rolled_up(rows: list[Made], streams: int, window_s: int) -> pd.DataFrame:
    """Return the final content of the rollup, by stream and start of window in seconds."""
    records = judged(rows, streams)
    good = records[records.reason.isna()].copy()
    good["start_s"] = good.created_ns // (window_s * NS_PER_S) * window_s
    good = good.sort_values(["stream", "created_ns", "sequence"])
    good["latency_ms"] = (good.received_ns - good.created_ns) / 1e6
    groups = good.groupby(["stream", "start_s"])
    heard = groups.agg(
        count=("value", "size"),
        mean=("value", "mean"),
        minimum=("value", "min"),
        maximum=("value", "max"),
        deviation=("value", "std"),
        p95=("value", lambda values: values.quantile(0.95)),
        first=("value", "first"),
        last=("value", "last"),
        latency_ms_mean=("latency_ms", "mean"),
        latency_ms_max=("latency_ms", "max"),
    )
    everywhere = pd.MultiIndex.from_product(
        [range(streams), sorted(good.start_s.unique())], names=["stream", "start_s"]
    )
    full = heard.reindex(everywhere)
    full["count"] = full["count"].fillna(0).astype("int64")
    starts = full.index.get_level_values("start_s").to_numpy()
    full["expected"] = (starts + window_s - np.maximum(starts, BEGAN_S)) * PER_S
    full["completeness"] = np.minimum(1.0, full["count"] / full["expected"])
    return full
