"""Tables of our experiments from their raw samples, in the layout of the sources (S3, chapter 5).

A sample is one event: when it was made, and when its subscriber had it. Bins are of whole
microseconds with both ends, as in "101-200"; the deviation is that of all samples, as the sources
print it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession

CELL: Final = ("experiment", "source", "kind")
SAMPLES: Final = (
    "experiment string, source string, kind string, run int, created_ns bigint, received_ns bigint"
)
SUMMARY: Final = (
    "experiment string, source string, kind string, samples bigint, mean_us double, min_us double, "
    "max_us double, sd_us double, p50_us double, p90_us double, p99_us double"
)
BINS: Final = (
    "experiment string, source string, kind string, lower_us bigint, upper_us bigint, "
    "range string, samples bigint, percent double, percent_to double"
)
NS_PER_US: Final = 1_000
WIDTH_US: Final = 100


def read_samples(spark: SparkSession, folder: Path) -> DataFrame:
    """Return the samples that `gridstat experiment run … --samples FOLDER` has written."""
    return spark.read.schema(SAMPLES).option("recursiveFileLookup", "true").parquet(str(folder))


def summaries(samples: DataFrame) -> DataFrame:
    """Latency from publisher to subscriber of each cell, as in S3 Fig 5.7."""
    latency_us = _us(F.col("received_ns") - F.col("created_ns"))
    shares = F.array(*[F.lit(share) for share in (0.5, 0.9, 0.99)])
    cells = samples.groupBy(*CELL).agg(
        *_measures(latency_us), F.percentile(latency_us, shares).alias("quantiles")
    )
    return cells.select(
        *CELL,
        "samples",
        "mean_us",
        "min_us",
        "max_us",
        "sd_us",
        *[F.col("quantiles")[at].alias(f"{name}_us") for at, name in enumerate(("p50", "p90"))],
        F.col("quantiles")[2].alias("p99_us"),
    )


def bins(samples: DataFrame, uppers_us: Sequence[int] = ()) -> DataFrame:
    """Count the samples in each range, as in S3 Fig 5.4 and 5.15; empty ranges are left out.

    Ranges end at `uppers_us`, and beyond them, or without them, are 100 us wide. `percent_to` is
    the share of all that took no longer than the range.
    """
    # Whole microseconds, as on the clock of the sources; less than one counts as one.
    taken_us = F.call_function("div", F.col("received_ns") - F.col("created_ns"), F.lit(NS_PER_US))
    placed = samples.select(*CELL, F.greatest(taken_us, F.lit(1)).alias("us"))
    counted = placed.groupBy(*CELL, _upper_us(F.col("us"), uppers_us).alias("upper_us")).agg(
        F.count("*").alias("samples")
    )
    whole = Window.partitionBy(*CELL)
    so_far = whole.orderBy("upper_us").rowsBetween(Window.unboundedPreceding, 0)
    lower_us = _lower_us(F.col("upper_us"), uppers_us)
    shared = counted.select(
        *CELL,
        lower_us.alias("lower_us"),
        "upper_us",
        F.concat_ws("-", lower_us, F.col("upper_us")).alias("range"),
        "samples",
        (100.0 * F.col("samples") / F.sum("samples").over(whole)).alias("percent"),
        (100.0 * F.sum("samples").over(so_far) / F.sum("samples").over(whole)).alias("percent_to"),
    )
    return shared.orderBy(*CELL, "upper_us")


def _measures(latency_us: Column) -> list[Column]:
    return [
        F.count("*").alias("samples"),
        F.avg(latency_us).alias("mean_us"),
        F.min(latency_us).alias("min_us"),
        F.max(latency_us).alias("max_us"),
        F.stddev_pop(latency_us).alias("sd_us"),
    ]


def _us(ns: Column) -> Column:
    return ns / F.lit(float(NS_PER_US))


def _upper_us(us: Column, uppers_us: Sequence[int]) -> Column:
    above = F.call_function("div", us + F.lit(WIDTH_US - 1), F.lit(WIDTH_US)) * F.lit(WIDTH_US)
    for upper_us in sorted(uppers_us, reverse=True):
        above = F.when(us <= upper_us, F.lit(upper_us).cast("bigint")).otherwise(above)
    return above


def _lower_us(upper_us: Column, uppers_us: Sequence[int]) -> Column:
    ordered = sorted(uppers_us)
    lower = upper_us - F.lit(WIDTH_US - 1)
    if ordered:  # The first range beyond the last of them begins behind it.
        lower = F.when(upper_us > ordered[-1], F.greatest(lower, F.lit(ordered[-1] + 1)))
    for before, upper in zip([0, *ordered], ordered, strict=False):
        lower = F.when(upper_us == upper, F.lit(before + 1)).otherwise(lower)
    return lower.cast("bigint")
