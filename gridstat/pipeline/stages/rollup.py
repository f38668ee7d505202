"""Rollup: what each stream did in each window of event time, be it a second, a minute or an hour.

A stream that was silent has a row with count 0 in every window in which it had something due and
somebody was heard; windows in which nobody was heard have none, for then it was the recorder that
was away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.pipeline.schemas import ROLLUP_1S, column_names
from gridstat.pipeline.slot_columns import due_between, named

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

EVENTS_INPUT: Final = (
    "stream int, created_ns bigint, received_ns bigint, sequence int, value double"
)
"""Good events; streams come as `KNOWN_STREAMS` of `known_streams.py`."""
CORE_OUTPUT: Final = (
    "stream int, window_start timestamp, count bigint, mean double, minimum double, maximum double"
)
NS_PER_S: Final = 1_000_000_000
NS_PER_US: Final = 1_000
NS_PER_MS: Final = 1e6
SEQUENCES: Final = 65_536
P95: Final = 0.95


def rollup(events: DataFrame, streams: DataFrame, window_s: int) -> DataFrame:
    """The columns of the rollup tables, with `day`."""
    window_ns = window_s * NS_PER_S
    known = F.broadcast(streams)
    start_ns = F.col("created_ns") - F.pmod("created_ns", F.lit(window_ns))
    heard = events.select(
        "stream", "created_ns", "received_ns", "sequence", "value", start_ns.alias("start_ns")
    )
    windows = heard.select("start_ns").distinct()
    silent = windows.crossJoin(known).filter(expected(window_ns) > 0).select("stream", "start_ns")
    together = heard.unionByName(silent, allowMissingColumns=True)
    summed = together.groupBy("stream", "start_ns").agg(*_measures())
    return _finished(summed.join(known, on="stream", how="left"), window_s)


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


def expected(window_ns: int) -> Column:
    """Slots due in the window from `start_ns` on, as long as the stream was there."""
    from_ns = F.greatest(F.col("start_ns"), F.col("since_ns"))
    to_ns = F.least(F.col("start_ns") + window_ns, F.col("until_ns"))
    return due_between(from_ns, to_ns, named(), F.col("every"))


def _measures() -> list[Column]:
    # A plain number, not a struct, lets Spark aggregate in place: twice as fast.
    order = (F.col("created_ns") - F.col("start_ns")) * SEQUENCES + F.col("sequence")
    latency_ms = (F.col("received_ns") - F.col("created_ns")) / NS_PER_MS
    return [
        F.count("value").alias("count"),
        F.avg("value").alias("mean"),
        F.min("value").alias("minimum"),
        F.max("value").alias("maximum"),
        F.stddev_samp("value").alias("deviation"),
        F.percentile("value", F.lit(P95)).alias("p95"),
        F.min_by("value", order).alias("first"),
        F.max_by("value", order).alias("last"),
        F.avg(latency_ms).alias("latency_ms_mean"),
        F.max(latency_ms).alias("latency_ms_max"),
    ]


def _finished(summed: DataFrame, window_s: int) -> DataFrame:
    start = F.timestamp_micros(F.call_function("div", F.col("start_ns"), F.lit(NS_PER_US)))
    due = F.when(F.col("period_seconds").isNotNull(), expected(window_s * NS_PER_S))
    counted = summed.withColumns(
        {
            "window_start": start,
            "window_s": F.lit(window_s),
            "expected": due.cast("bigint"),
            "day": start.cast("date"),
        }
    )
    share = F.when(F.col("expected") > 0, F.least(F.lit(1.0), F.col("count") / F.col("expected")))
    return counted.withColumn("completeness", share).select(*column_names(ROLLUP_1S))
