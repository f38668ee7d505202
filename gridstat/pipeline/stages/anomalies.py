"""Anomalies: windows that lie far from the usual value of the variable at that hour of the day.

Law in `model/robust_score.py`; the profile is that of `stages/profiles.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.model.robust_score import NORMAL_QUARTILE, SCORE_LIMIT, VALUES_MIN
from gridstat.pipeline.schemas import ANOMALIES, column_names
from gridstat.pipeline.stages.profiles import ANY_DAY, device_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

INPUT: Final = "variable string, window_start timestamp, window_s int, count bigint, mean double"


def robust_score(value: Column, median: Column, spread: Column) -> Column:
    """The law, as a column."""
    score = F.lit(NORMAL_QUARTILE) * (value - median) / spread
    return F.when(spread > 0, score).otherwise(F.lit(0.0))


def anomalies(rollups: DataFrame, profiles: DataFrame, *, limit: float = SCORE_LIMIT) -> DataFrame:
    """Each window whose mean is an outlier beside others of the same variable and hour."""
    usual = profiles.filter((F.col("weekday") == ANY_DAY) & (F.col("windows") >= VALUES_MIN))
    usual = usual.select("variable", "hour", "median", "mad")
    received = rollups.filter(F.col("count") > 0).withColumn("hour", F.hour("window_start"))
    judged = received.join(F.broadcast(usual), on=["variable", "hour"], how="inner").withColumn(
        "score", robust_score(F.col("mean"), F.col("median"), F.col("mad"))
    )
    found = judged.filter(F.abs("score") > limit).withColumns(
        {
            "device": device_of(F.col("variable")),
            "value": F.col("mean"),
            "usual": F.col("median"),
            "day": F.to_date("window_start"),
        }
    )
    return found.select(*column_names(ANOMALIES))
