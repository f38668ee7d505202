"""Contracts cut into hours: the terms that held, and how many slots they promised by the law."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.pipeline.slot_columns import due_between, named
from gridstat.pipeline.stages.ledger_hours import HOUR_NS, SUBSCRIPTION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TERMS: Final = (
    "publisher",
    "period_seconds",
    "period_per_seconds",
    "phase_ns",
    "every",
    "latency_ms",
)
OUTPUT: Final = (*SUBSCRIPTION, "hour_ns", *TERMS, "held_ns", "expected_by_law")


def terms_held(contracts: DataFrame, until_ns: int) -> DataFrame:
    """Each contract's terms with the time for which they held, up to the next or to `until_ns`."""
    in_order = Window.partitionBy(*SUBSCRIPTION).orderBy("time_ns")
    next_ns = F.lead("time_ns").over(in_order)
    stretches = contracts.select(
        *SUBSCRIPTION,
        *TERMS,
        "is_over",
        F.col("time_ns").alias("from_ns"),
        F.least(F.coalesce(next_ns, F.lit(until_ns)), F.lit(until_ns)).alias("to_ns"),
    )
    return stretches.filter(~F.col("is_over") & (F.col("to_ns") > F.col("from_ns"))).drop("is_over")


def promises_by_hour(contracts: DataFrame, until_ns: int) -> DataFrame:
    """Return for each contract and hour the last terms in that hour, and the sum of what was
    promised."""
    held = terms_held(contracts, until_ns)
    hours = F.sequence(
        _hour(F.col("from_ns")), _hour(F.col("to_ns") - F.lit(1)), F.lit(HOUR_NS).cast("bigint")
    )
    cut = held.withColumn("hour_ns", F.explode(hours))
    from_ns = F.greatest("from_ns", "hour_ns")
    to_ns = F.least(F.col("to_ns"), F.col("hour_ns") + F.lit(HOUR_NS))
    due = due_between(from_ns, to_ns, named(), F.col("every"))

    pieces = cut.select(
        *SUBSCRIPTION, *TERMS, "hour_ns", "from_ns", (to_ns - from_ns).alias("ns"), due.alias("due")
    )
    newest = [F.max_by(name, "from_ns").alias(name) for name in TERMS]
    promised = pieces.groupBy(*SUBSCRIPTION, "hour_ns").agg(
        *newest, F.sum("ns").alias("held_ns"), F.sum("due").alias("expected_by_law")
    )
    return promised.select(*OUTPUT)


def merged(stretches: DataFrame) -> DataFrame:
    """Return the same spans without the parts that lie in an earlier span."""
    in_order = Window.orderBy("from_ns", "to_ns")
    earlier = in_order.rowsBetween(Window.unboundedPreceding, -1)
    known_ns = F.coalesce(F.max("to_ns").over(earlier), F.col("from_ns"))
    own = stretches.select(F.greatest("from_ns", known_ns).alias("from_ns"), "to_ns")
    return own.filter("to_ns > from_ns")


def unrecorded_by_hour(gaps: DataFrame) -> DataFrame:
    """Return the unrecorded time in each hour; overlapping gaps count once."""
    hours = F.sequence(
        _hour(F.col("from_ns")), _hour(F.col("to_ns") - F.lit(1)), F.lit(HOUR_NS).cast("bigint")
    )
    cut = merged(gaps).withColumn("hour_ns", F.explode(hours))
    from_ns = F.greatest("from_ns", "hour_ns")
    to_ns = F.least(F.col("to_ns"), F.col("hour_ns") + F.lit(HOUR_NS))
    return cut.groupBy("hour_ns").agg((F.sum(to_ns - from_ns) / 1e9).alias("unrecorded_s"))


def _hour(instant_ns: Column) -> Column:
    return instant_ns - F.pmod(instant_ns, F.lit(HOUR_NS))
