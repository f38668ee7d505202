"""Ledgers, counts since each subscription began, cut into hours.

A reading's increase over the one before it belongs to the hour in which it was read, its end
included. Counts that fall have started again from zero: then the whole reading is increase, as in
Prometheus, and for all counts of the row at once.
"""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.pipeline.histogram_columns import sum_counts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SUBSCRIPTION: Final = ("subscription", "endpoint", "variable")
"""Key of a subscription; its number alone could mean another one after a broker has started
anew."""
COUNTS: Final = (
    "expected",
    "delivered",
    "late",
    "lost",
    "duplicate",
    "extrapolated",
    "unknown",
    "recovered",
    "dropped",
)
HOUR_NS: Final = 3_600_000_000_000
OUTPUT: Final = (*SUBSCRIPTION, "hour_ns", *COUNTS, "latency_counts", "readings")


def counts_by_hour(ledgers: DataFrame) -> DataFrame:
    """Return the counts of each subscription in each hour that has a reading.

    Of the oldest reading of all it is not known when its counts began: it is only a base. A
    subscription that appears later began later, and counts from nothing.
    """
    whole = ledgers.filter(F.col("path").isNull())
    oldest = whole.agg(F.min("time_ns").alias("oldest_ns"))
    in_order = Window.partitionBy(*SUBSCRIPTION).orderBy("time_ns", "expected")

    before = [F.lag(name).over(in_order).alias(f"{name}_before") for name in COUNTS]
    latencies = F.lag("latency_counts").over(in_order).alias("latency_counts_before")
    read = whole.join(F.broadcast(oldest), how="cross").select("*", *before, latencies)

    is_first = F.col("expected_before").isNull()
    fell = [F.col(name) < F.col(f"{name}_before") for name in COUNTS]
    begins = is_first | reduce(lambda one, other: one | other, fell)
    known = read.filter(~(is_first & (F.col("time_ns") == F.col("oldest_ns"))))
    # A column of its own: written into every increase it would be reckoned for each of them.
    marked = known.withColumn("begins", begins)
    rises = marked.select(
        *SUBSCRIPTION,
        hour_of_reading(F.col("time_ns")).alias("hour_ns"),
        *[_increase(F.col(name), F.col(f"{name}_before")).alias(name) for name in COUNTS],
        _histogram_rise().alias("rise"),
    )

    sums = [F.sum(name).alias(name) for name in COUNTS]
    hours = rises.groupBy(*SUBSCRIPTION, "hour_ns").agg(
        *sums, sum_counts(F.col("rise")).alias("latency_counts"), F.count("*").alias("readings")
    )
    return hours.select(*OUTPUT)


def hour_of_reading(time_ns: Column) -> Column:
    """Return the hour of a reading; a reading at the very end of an hour belongs to it."""
    before_ns = time_ns - F.lit(1)
    return before_ns - F.pmod(before_ns, F.lit(HOUR_NS))


def _increase(now: Column, before: Column) -> Column:
    return now - F.when(F.col("begins"), F.lit(0)).otherwise(before)


def _histogram_rise() -> Column:
    now = F.coalesce("latency_counts", F.array().cast("array<bigint>"))
    before = F.when(~F.col("begins"), F.col("latency_counts_before"))
    none = F.array().cast("array<bigint>")
    nothing = F.lit(0).cast("bigint")
    return F.zip_with(
        now,
        F.coalesce(before, none),
        lambda one, other: F.coalesce(one, nothing) - F.coalesce(other, nothing),
    )
