"""Exact figures of the recorder's own subscriptions, from their archived events.

A stream is one contract of the recorder; every due slot that has no event is missing, and slots
missing one after the other are a gap. Others' gaps are known from their ledgers alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F

from gridstat.pipeline.slot_columns import (
    due_from,
    first_slot_from,
    named,
    slot_instant_ns,
    slot_of,
)
from gridstat.pipeline.stages.contract_hours import merged, terms_held
from gridstat.pipeline.stages.ledger_hours import HOUR_NS, SUBSCRIPTION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

TIME_QUALITY_BITS: Final = 0b11
NS_PER_US: Final = 1_000.0
GRACE_NS: Final = 2_000_000_000
"""Shortest gap after a grant or at the end; a shorter one is set-up time or an event in flight."""
GAP: Final = (*SUBSCRIPTION, "hour_ns", "slots", "from_ns", "to_ns", "is_exact")
"""A gap: so many due slots in a row, from the first one's instant to that of the slot after."""
_LAW: Final = ("period_seconds", "period_per_seconds", "phase_ns", "every")


def latencies_by_hour(events: DataFrame, streams: DataFrame) -> DataFrame:
    """Exact quantiles of the latencies whose stamps are good, by hour of creation."""
    latency_us = (F.col("received_ns") - F.col("created_ns")) / F.lit(NS_PER_US)
    is_good = F.col("flags").bitwiseAND(F.lit(TIME_QUALITY_BITS)) == 0
    owners = streams.select("stream", "subscription", F.col("variable").alias("name"))
    good = events.filter(is_good).join(F.broadcast(owners), on="stream", how="inner")
    hours = good.groupBy("subscription", F.col("name").alias("variable"), _hour("created_ns"))
    shares = F.array(F.lit(0.5), F.lit(0.95), F.lit(0.99))
    found = hours.agg(F.percentile(latency_us, shares).alias("us"), F.max(latency_us).alias("max"))
    return found.select(
        "subscription",
        "variable",
        "hour_ns",
        F.col("us")[0].alias("exact_us_p50"),
        F.col("us")[1].alias("exact_us_p95"),
        F.col("us")[2].alias("exact_us_p99"),
        F.col("max").alias("exact_us_max"),
    )


def gaps_of_streams(
    events: DataFrame,
    streams: DataFrame,
    contracts: DataFrame,
    until_ns: int,
    last_events: DataFrame | None = None,
) -> DataFrame:
    """Every gap of every stream: before its first event, between two, and after the last.

    If some events are left out, `heard` names the streams of interest and when each was last heard
    before; what was due earlier is no matter then.
    """
    bounds = _since_last_event(_bounds(streams, contracts, until_ns), last_events)
    law = bounds.select("stream", *_LAW)
    stamped = events.select("stream", "created_ns").join(F.broadcast(law), on="stream", how="inner")
    slots = stamped.select("stream", slot_of(F.col("created_ns"), named()).alias("slot"), "every")
    due = slots.filter(F.pmod("slot", "every") == 0).select(
        "stream", "slot", F.lit(False).alias("is_end")
    )
    start = F.col("first") - F.col("every")
    for end, is_end in ((start, F.col("heard_ns").isNull()), (F.col("after"), F.lit(True))):
        due = due.unionByName(bounds.select("stream", end.alias("slot"), is_end.alias("is_end")))
    in_order = Window.partitionBy("stream").orderBy("slot")
    steps = due.select(
        "stream",
        F.lag("slot").over(in_order).alias("before"),
        F.col("slot").alias("next"),
        (F.col("is_end") | F.lag("is_end").over(in_order)).alias("is_at_end"),
    )
    gaps = steps.join(F.broadcast(bounds), on="stream", how="inner")
    first = F.col("before") + F.col("every")
    timed = gaps.filter(F.col("next") > first).select(
        "subscription",
        "variable",
        slot_instant_ns(first, named()).alias("from_ns"),
        slot_instant_ns(F.col("next"), named()).alias("to_ns"),
        *_LAW,
        "is_at_end",
    )
    is_long = F.col("to_ns") - F.col("from_ns") > F.lit(GRACE_NS)
    return timed.filter(~F.col("is_at_end") | is_long).drop("is_at_end")


def without_unrecorded(gaps: DataFrame, unrecorded: DataFrame) -> DataFrame:
    """Remove slots from gaps that were due while nothing was recorded, since their fate is
    unknown."""
    away = merged(unrecorded).select(
        F.col("from_ns").alias("away_ns"), F.col("to_ns").alias("back_ns")
    )
    overlaps = (F.col("away_ns") < F.col("to_ns")) & (F.col("back_ns") > F.col("from_ns"))
    absence = F.when(F.col("away_ns").isNotNull(), F.struct("away_ns", "back_ns"))
    absences = gaps.join(F.broadcast(away), on=overlaps, how="left").groupBy(*gaps.columns)
    known = absences.agg(F.sort_array(F.collect_list(absence)).alias("absences"))
    pieces = F.arrays_zip(
        F.concat(F.array("from_ns"), F.col("absences.back_ns")).alias("from_ns"),
        F.concat(F.col("absences.away_ns"), F.array("to_ns")).alias("to_ns"),
    )
    cut = known.select("subscription", "variable", *_LAW, F.explode(pieces).alias("piece"))
    # In steps, so that no slot is reckoned twice.
    first = _due_from(F.col("piece.from_ns")).alias("first")
    ends = cut.select("*", first, _due_from(F.col("piece.to_ns")).alias("after"))
    return ends.filter("after > first").select(
        "subscription",
        "variable",
        F.expr("(after - first) div every").alias("slots"),
        slot_instant_ns(F.col("first"), named()).alias("from_ns"),
        slot_instant_ns(F.col("after"), named()).alias("to_ns"),
    )


def gaps_of_ledgers(ledgers: DataFrame, contracts: DataFrame, until_ns: int) -> DataFrame:
    """Return the worst gap of each subscription and hour, as its subscriber has reported it."""
    reported = ledgers.filter(F.col("path").isNull() & (F.col("gap_slots_max") > 0))
    worst = reported.groupBy(*SUBSCRIPTION, _hour("gap_ended_ns")).agg(
        F.max("gap_slots_max").alias("slots"),
        F.max_by("gap_ended_ns", "gap_slots_max").alias("to_ns"),
    )
    held = terms_held(contracts, until_ns).select(
        *SUBSCRIPTION, *_LAW, F.col("from_ns").alias("held_from_ns")
    )
    # By the newest terms that began before the gap was over.
    joined = worst.join(held, on=[*SUBSCRIPTION], how="left")
    fitting = F.when(F.col("held_from_ns") <= F.col("to_ns"), F.col("held_from_ns"))
    newest = [F.max_by(name, fitting).alias(name) for name in _LAW]
    gaps = joined.groupBy(*SUBSCRIPTION, "hour_ns", "slots", "to_ns").agg(*newest)
    first = _due_from(F.col("to_ns")) - F.col("slots") * F.col("every")
    from_ns = slot_instant_ns(first, named()).alias("from_ns")
    return gaps.select(
        *SUBSCRIPTION, "hour_ns", "slots", from_ns, "to_ns", F.lit(False).alias("is_exact")
    )


def _bounds(streams: DataFrame, contracts: DataFrame, until_ns: int) -> DataFrame:
    """Return the first slot of each stream that is due, and the first that is no longer due."""
    over = contracts.filter("is_over").groupBy("subscription", "variable")
    ends = over.agg(F.max("time_ns").alias("over_ns"))
    # A variable goes on under another number on other terms, or under another contract.
    in_order = Window.partitionBy("variable").orderBy("stream")
    # `least` leaves out what is null: a stream without an end goes on until the end of all.
    end_ns = F.least(F.lead("since_ns").over(in_order), "over_ns", F.lit(until_ns))
    known = streams.join(F.broadcast(ends), on=["subscription", "variable"], how="left")
    periodic = known.select("*", F.greatest(end_ns, "since_ns").alias("end_ns"))
    return periodic.filter(F.col("period_seconds").isNotNull()).select(
        "stream",
        "subscription",
        "variable",
        *_LAW,
        _due_from(F.col("since_ns")).alias("first"),
        _due_from(F.col("end_ns")).alias("after"),
    )


def _since_last_event(bounds: DataFrame, last_events: DataFrame | None) -> DataFrame:
    if last_events is None:
        return bounds.withColumn("heard_ns", F.lit(None).cast("bigint"))
    known = bounds.join(F.broadcast(last_events), on="stream", how="inner")
    next_due = slot_of(F.col("heard_ns"), named()) + F.col("every")
    # `greatest` leaves out nulls: a stream without an event is missing from its beginning.
    return known.withColumn("first", F.greatest("first", next_due))


def _due_from(instant_ns: Column) -> Column:
    return due_from(first_slot_from(instant_ns, named()), F.col("every"))


def _hour(name: str) -> Column:
    return (F.col(name) - F.pmod(F.col(name), F.lit(HOUR_NS))).alias("hour_ns")
