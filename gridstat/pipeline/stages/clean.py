"""Clean: which recorded events are good, why the others are not, and which came before.

No row is dropped: a bad one gets a `reason`, and goes to quarantine instead of the archive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.model.status import EventFlag
from gridstat.pipeline.schemas import EVENTS, column_names

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from gridstat.model.plausibility import TimeBounds

UNKNOWN_STREAM: Final = "unknown_stream"
IMPLAUSIBLE_TIME: Final = "implausible_time"
NOT_FINITE: Final = "not_finite"
DUPLICATE: Final = "duplicate"
REASONS: Final = (UNKNOWN_STREAM, IMPLAUSIBLE_TIME, NOT_FINITE, DUPLICATE)

IDENTITY: Final = ("stream", "created_ns", "sequence")
"""Two events with the same are one event that came twice."""
NS_PER_US: Final = 1_000


def clean(recorded: DataFrame, bounds: TimeBounds) -> DataFrame:
    """Takes the columns of `RECORDED`; gives those of the archive and `reason`, null if good."""
    reason = (
        F.when(F.col("variable").isNull(), UNKNOWN_STREAM)
        .when(~is_plausible_time(bounds), IMPLAUSIBLE_TIME)
        .when(~is_finite(F.col("value")), NOT_FINITE)
    )
    judged = recorded.withColumn("reason", reason)
    return judged.withColumn("day", day()).select(*column_names(EVENTS), "reason")


def deduplicate(cleaned: DataFrame, known: DataFrame) -> DataFrame:
    """The same rows; of good ones with the same identity all but the first are duplicates.

    `known` holds identity and `record` of rows that were archived before.
    """
    before = known.select(*IDENTITY, "record", F.lit(True).alias("is_known"))
    together = cleaned.withColumn("is_known", F.lit(False)).unionByName(
        before, allowMissingColumns=True
    )
    in_order = Window.partitionBy(*IDENTITY).orderBy(F.col("reason").isNotNull(), "record")
    # One shuffle serves: all rows of an identity are of one stream.
    ranked = together.repartition("stream").withColumn("rank", F.row_number().over(in_order))
    reason = F.coalesce("reason", F.when(F.col("rank") > 1, DUPLICATE))
    judged = ranked.filter(~F.col("is_known")).withColumn("reason", reason)
    return judged.withColumn("day", day()).select(*column_names(EVENTS), "reason")


def day() -> Column:
    """The day of creation of a good event, and of arrival of a bad one."""
    time_ns = F.when(F.col("reason").isNull(), F.col("created_ns")).otherwise(F.col("received_ns"))
    return F.timestamp_micros(F.call_function("div", time_ns, F.lit(NS_PER_US))).cast("date")


def is_plausible_time(bounds: TimeBounds) -> Column:
    """The law of `model/plausibility.py` over the columns of an event."""
    created_ns, received_ns = F.col("created_ns"), F.col("received_ns")
    is_replayed = F.col("flags").bitwiseAND(int(EventFlag.REPLAYED)) != 0
    is_ahead = created_ns > received_ns + bounds.ahead_ns_max
    is_behind = created_ns < received_ns - bounds.behind_ns_max
    return ~is_ahead & (is_replayed | ~is_behind)


def is_finite(value: Column) -> Column:
    """Whether a value is neither missing nor infinite nor not a number."""
    return value.isNotNull() & ~F.isnan(value) & (F.abs(value) != float("inf"))
