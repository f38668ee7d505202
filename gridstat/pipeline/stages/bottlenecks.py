"""Bottlenecks: channels by their losses, their load, and the events that waited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.pipeline.schemas import BOTTLENECKS, column_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BANDWIDTH: Final = "bandwidth_bytes_per_s"
"""Declared bandwidth of the channel, recorded beside its counters; 0: not declared. It is no
counter."""
QUEUED: Final = "queued"
"""Number of events that wait at the moment. It is no counter either."""
DROPS: Final = ("queue_full", "pool_empty", "send_failed", "no_key", "unproven")
PLACE: Final = ("router", "channel")
NS_PER_S: Final = 1e9


def bottlenecks(counters: DataFrame) -> DataFrame:
    """All channels, the narrowest first; what was counted before the first reading is left out.

    A bottleneck first of all loses events; then it is full, at its busiest; then it makes events
    wait. A router that began anew counts from nothing. How full a channel is nobody knows whose
    bandwidth was not declared.
    """
    of_channels = counters.filter(F.col("channel") != "")
    rises = _rises(of_channels)
    counted = rises.groupBy(*PLACE).agg(
        _sum_of("due").alias("due"),
        _sum_of("sent").alias("sent"),
        _sum_of(*DROPS).alias("dropped"),
        _sum_of("bytes_out").alias("bytes"),
        F.max(_only(F.col("rate"), "bytes_out")).alias("bytes_per_s_max"),
        ((F.max("time_ns") - F.min("before_ns")) / NS_PER_S).alias("seconds"),
    )
    read = of_channels.groupBy(*PLACE).agg(
        F.max_by("value", _only(F.col("time_ns"), BANDWIDTH)).alias(BANDWIDTH),
        F.max(_only(F.col("value"), QUEUED)).alias("queued_max"),
    )
    known = counted.join(read, on=[*PLACE], how="inner")
    judged = known.withColumns(
        {
            "bytes_per_s_mean": F.col("bytes") / F.col("seconds"),
            "share_max": F.try_divide("bytes_per_s_max", BANDWIDTH),
            "dropped_share": F.coalesce(F.try_divide("dropped", "due"), F.lit(0.0)),
        }
    )
    order = [F.col(name).desc_nulls_last() for name in ("dropped_share", "share_max")]
    order += [F.col("queued_max").desc_nulls_last(), *map(F.col, PLACE)]
    ranked = judged.withColumn("place", F.row_number().over(Window.orderBy(*order)))
    return ranked.select(*column_names(BOTTLENECKS))


def _rises(counters: DataFrame) -> DataFrame:
    """Return the increase of each counter from one reading to the next, and the rate of
    increase."""
    in_order = Window.partitionBy(*PLACE, "counter").orderBy("time_ns")
    read = counters.filter(~F.col("counter").isin(BANDWIDTH, QUEUED)).select(
        *PLACE,
        "counter",
        "time_ns",
        "value",
        F.lag("value").over(in_order).alias("before"),
        F.lag("time_ns").over(in_order).alias("before_ns"),
    )
    has_fallen = F.col("value") < F.col("before")
    rise = F.when(has_fallen, F.col("value")).otherwise(F.col("value") - F.col("before"))
    rate = F.col("rise") * NS_PER_S / (F.col("time_ns") - F.col("before_ns"))
    known = read.filter(F.col("time_ns") > F.col("before_ns"))
    return known.withColumn("rise", rise).withColumn("rate", rate)


def _sum_of(*counters: str) -> Column:
    return F.coalesce(F.sum(_only(F.col("rise"), *counters)), F.lit(0))


def _only(value: Column, *counters: str) -> Column:
    return F.when(F.col("counter").isin(*counters), value)
