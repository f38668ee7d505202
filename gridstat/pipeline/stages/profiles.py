"""Usual values: averages by hour, day and week, and the profile of each hour of the day and week.

Made from rollups, which keep counts, so that averages are those of the single values and not of
windows. Hours, days and weeks are of UTC; weeks begin on Monday, as ISO 8601 says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.pipeline.schemas import AVERAGES, PROFILES, column_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INPUT: Final = (
    "variable string, window_start timestamp, count bigint, expected bigint, mean double, "
    "minimum double, maximum double, deviation double"
)
SPANS: Final = ("hour", "day", "week")
ANY_DAY: Final = 0
"""Stands for all days of the week in `weekday`, where Monday is 1."""


def device_of(variable: Column) -> Column:
    """A variable's name without its last part."""
    return F.regexp_replace(variable, "/[^/]*$", "")


def averages(rollups: DataFrame) -> DataFrame:
    """Return the average of each variable in every hour, day and week (S2 §4.5)."""
    spans = [
        F.struct(F.lit(span).alias("span"), F.date_trunc(span, "window_start").alias("span_start"))
        for span in SPANS
    ]
    windows = _centred(rollups).select("*", F.explode(F.array(*spans)).alias("at"))
    found = windows.groupBy("variable", "at.span", "at.span_start").agg(*_measures())
    return _finished(found).select(*column_names(AVERAGES))


def profiles(rollups: DataFrame) -> DataFrame:
    """Return the profile of each variable at each hour of the day, for each day of the week and any
    day."""
    weekday = F.pmod(F.dayofweek("window_start") + F.lit(5), F.lit(7)) + F.lit(1)
    key = ["variable", "weekday", "hour"]
    windows = _centred(rollups).select(
        "*",
        F.hour("window_start").alias("hour"),
        F.explode(F.array(weekday, F.lit(ANY_DAY))).alias("weekday"),
    )
    middles = windows.groupBy(*key).agg(
        *_measures(), F.count("*").alias("windows"), F.median("mean").alias("median")
    )
    # The distances from the median need the median first.
    known = windows.select(*key, "mean").join(
        middles.select(*key, F.col("median").alias("middle")), on=key, how="inner"
    )
    spreads = known.groupBy(*key).agg(F.median(F.abs(F.col("mean") - F.col("middle"))).alias("mad"))
    return _finished(middles.join(spreads, on=key, how="inner")).select(*column_names(PROFILES))


def _centred(rollups: DataFrame) -> DataFrame:
    """Add each variable's own mean, to be subtracted: squares of large numbers would lose
    precision."""
    own = Window.partitionBy("variable")
    return rollups.filter(F.col("count") > 0).withColumn("centre", F.avg("mean").over(own))


def _measures() -> list[Column]:
    off = F.col("mean") - F.col("centre")
    within = F.coalesce(F.col("deviation"), F.lit(0.0))
    squares = (F.col("count") - 1) * within * within + F.col("count") * off * off
    return [
        F.sum("count").alias("count"),
        F.sum("expected").alias("expected"),
        F.min("minimum").alias("minimum"),
        F.max("maximum").alias("maximum"),
        F.first("centre").alias("centre"),
        F.sum(F.col("count") * off).alias("offs"),
        F.sum(squares).alias("squares"),
    ]


def _finished(found: DataFrame) -> DataFrame:
    off = F.col("offs") / F.col("count")
    # `least` leaves out what is null, so that nothing due would be all of it.
    share = F.try_divide("count", "expected")
    left = F.greatest(F.col("squares") - F.col("count") * off * off, F.lit(0.0))
    return found.withColumns(
        {
            "device": device_of(F.col("variable")),
            "mean": F.col("centre") + off,
            "deviation": F.when(F.col("count") > 1, F.sqrt(left / (F.col("count") - 1))),
            "completeness": F.when(share > 1, F.lit(1.0)).otherwise(share),
        }
    )
