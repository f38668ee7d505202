"""Pearson's correlation of every pair of variables over their common seconds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.pipeline.schemas import CORRELATIONS, column_names

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

INPUT: Final = "variable string, window_start timestamp, count bigint, mean double"
VARIABLES_MAX: Final = 64
"""Most variables; pairs grow with the square, so those with the most events are taken."""
SECONDS_MIN: Final = 30
"""Fewest common seconds for a correlation."""


def correlations(
    rollups: DataFrame, *, variables_max: int = VARIABLES_MAX, seconds_min: int = SECONDS_MIN
) -> DataFrame:
    """Each pair once, the earlier name first; null where one of the two never moved."""
    received = rollups.filter(F.col("count") > 0)
    often = received.groupBy("variable").agg(F.sum("count").alias("events"))
    chosen = often.orderBy(F.col("events").desc(), "variable").limit(variables_max)
    kept = received.join(F.broadcast(chosen.select("variable")), on="variable", how="left_semi")
    # A variable whose contract has changed has two streams in that second.
    weighted = F.sum(F.col("mean") * F.col("count")) / F.sum("count")
    seconds = kept.groupBy("variable", "window_start").agg(weighted.alias("value"))

    one = seconds.select("window_start", F.col("variable").alias("variable"), "value")
    other = seconds.select(
        "window_start", F.col("variable").alias("other"), F.col("value").alias("other_value")
    )
    pairs = one.join(other, on="window_start", how="inner").filter("variable < other")
    found = pairs.groupBy("variable", "other").agg(
        F.corr("value", "other_value").alias("correlation"),
        F.count("*").alias("seconds"),
        F.min("window_start").alias("first_second"),
        F.max("window_start").alias("last_second"),
    )
    return found.filter(F.col("seconds") >= seconds_min).select(*column_names(CORRELATIONS))
