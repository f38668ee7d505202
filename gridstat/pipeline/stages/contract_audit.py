"""Audit of contracts: the promise of each contract in each hour, and the evidence of its delivery.

Three sources are joined: the granted contracts with the law of slots, which give the slots that
were due; the ledgers, in which subscribers report what came; and, for the recorder's own
subscriptions, the archived events, which give exact latencies and gaps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F

from gridstat.pipeline.histogram_columns import longest_us, quantile_us
from gridstat.pipeline.schemas import AUDIT, column_names
from gridstat.pipeline.stages.contract_hours import promises_by_hour, unrecorded_by_hour
from gridstat.pipeline.stages.ledger_hours import HOUR_NS, SUBSCRIPTION, counts_by_hour
from gridstat.pipeline.stages.stream_hours import (
    GAP,
    gaps_of_ledgers,
    gaps_of_streams,
    latencies_by_hour,
    without_unrecorded,
)
from gridstat.record.log_settings import LEDGER_S

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

OPEN_S: Final = 15.0
"""Slots that may be counted in the next hour, in seconds before the end of an hour: a contract is
seen and a ledger read every few seconds, and a slot is open for its latency and a second more."""
QUANTILES: Final = (("p50", 0.5), ("p95", 0.95), ("p99", 0.99))
GAPS_COLUMNS: Final = (
    "subscription bigint, endpoint string, variable string, slots bigint, seconds double, "
    "gap_start timestamp, gap_end timestamp, from_ns bigint, to_ns bigint, is_exact boolean"
)
"""Columns of `all_gaps` and `worst_gaps`."""


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Everything that is known of some hours; kinds of the log, and the archive of events."""

    contracts: DataFrame
    ledgers: DataFrame
    streams: DataFrame
    events: DataFrame
    unrecorded: DataFrame
    archived_ns: int
    """Events created up to here are in the archive, or never came."""
    last_events: DataFrame | None = None
    """Streams of interest and the time of each one's last earlier event, if `events` are only a
    part."""


def audit(witnesses: Witnesses, until_ns: int, *, open_s: float = OPEN_S) -> DataFrame:
    """One row for each contract and hour, up to `until_ns`."""
    promised = promises_by_hour(witnesses.contracts, until_ns)
    counted = counts_by_hour(witnesses.ledgers)
    hours = promised.join(counted, on=[*SUBSCRIPTION, "hour_ns"], how="left")

    exact = latencies_by_hour(witnesses.events, witnesses.streams)
    hours = hours.join(exact, on=["subscription", "variable", "hour_ns"], how="left")

    worst = _worst_of_hour(_gaps(witnesses, until_ns))
    hours = hours.join(worst, on=[*SUBSCRIPTION, "hour_ns"], how="left")

    away = unrecorded_by_hour(witnesses.unrecorded)
    hours = hours.join(F.broadcast(away), on="hour_ns", how="left")
    # The reading of an hour that goes on may be as old as the recorder allows.
    goes_on = F.col("hour_ns") + F.lit(HOUR_NS) > F.lit(until_ns)
    return _as_table(hours, F.when(goes_on, open_s + LEDGER_S).otherwise(open_s))


def all_gaps(witnesses: Witnesses, until_ns: int) -> DataFrame:
    """The gaps with their times: every one of the recorder's own, and of others the worst of each
    hour."""
    gaps = _gaps(witnesses, until_ns)
    length_ns = F.col("to_ns") - F.col("from_ns")
    return gaps.select(
        *SUBSCRIPTION,
        "slots",
        (length_ns / 1e9).alias("seconds"),
        _timestamp(F.col("from_ns")).alias("gap_start"),
        _timestamp(F.col("to_ns")).alias("gap_end"),
        "from_ns",
        "to_ns",
        "is_exact",
    )


def worst_gaps(gaps: DataFrame, count: int) -> DataFrame:
    """The longest in time, the longest first; of those that are as long, the oldest first."""
    length_ns = F.col("to_ns") - F.col("from_ns")
    return gaps.orderBy(length_ns.desc(), "from_ns", *SUBSCRIPTION).limit(count)


def _gaps(witnesses: Witnesses, until_ns: int) -> DataFrame:
    """Return the gaps of subscriptions: from the archive where it has the subscription, else from
    its ledger."""
    heard_ns = min(until_ns, witnesses.archived_ns)
    found = gaps_of_streams(
        witnesses.events, witnesses.streams, witnesses.contracts, heard_ns, witnesses.last_events
    )
    known = without_unrecorded(found, witnesses.unrecorded)
    owners = witnesses.contracts.select(*SUBSCRIPTION).distinct()
    exact = known.join(owners, on=["subscription", "variable"], how="inner").select(
        *SUBSCRIPTION,
        (F.col("to_ns") - F.pmod(F.col("to_ns"), F.lit(HOUR_NS))).alias("hour_ns"),
        "slots",
        "from_ns",
        "to_ns",
        F.lit(True).alias("is_exact"),
    )
    own = witnesses.streams.select("subscription", "variable").distinct()
    reported = gaps_of_ledgers(witnesses.ledgers, witnesses.contracts, until_ns)
    others = reported.join(F.broadcast(own), on=["subscription", "variable"], how="left_anti")
    return exact.unionByName(others.select(*GAP))


def _worst_of_hour(gaps: DataFrame) -> DataFrame:
    return gaps.groupBy(*SUBSCRIPTION, "hour_ns").agg(
        F.max("slots").alias("gap_slots_max"),
        F.max_by("from_ns", "slots").alias("gap_from_ns"),
        F.max_by(F.col("to_ns") - F.col("from_ns"), "slots").alias("gap_ns"),
    )


def _as_table(hours: DataFrame, open_s: Column) -> DataFrame:
    exact = F.col("exact_us_p50").isNotNull()
    latencies = {
        f"latency_us_{name}": F.coalesce(f"exact_us_{name}", quantile_us(_counts(), share))
        for name, share in QUANTILES
    }
    latencies["latency_us_max"] = F.coalesce("exact_us_max", longest_us(_counts()))
    period_s = F.col("period_seconds") / F.col("period_per_seconds")
    values: dict[str, Column] = {
        "hour": _timestamp(F.col("hour_ns")),
        "interval_s": period_s * F.col("every"),
        "held_s": F.col("held_ns") / 1e9,
        **latencies,
        "is_exact": exact,
        "gap_slots_max": F.coalesce("gap_slots_max", F.lit(0)),
        "gap_start": _timestamp(F.col("gap_from_ns")),
        "gap_s": F.col("gap_ns") / 1e9,
        "unrecorded_s": F.coalesce("unrecorded_s", F.lit(0.0)),
        "is_kept": _is_kept(open_s),
        "day": F.to_date(_timestamp(F.col("hour_ns"))),
    }
    known = hours.withColumns(values)
    return known.select(*column_names(AUDIT))


def _is_kept(open_s: Column) -> Column:
    """Return false if the contract is known to be broken, null if unknown, true only if all is
    well."""
    open_slots = open_s * F.col("period_per_seconds") / F.col("period_seconds")
    open_slots = F.ceil(open_slots / F.col("every")) + F.lit(1)
    missing = F.col("expected_by_law") - F.col("expected")
    is_short = F.coalesce(missing > open_slots, F.lit(False))
    is_broken = (F.col("lost") > 0) | (F.col("late") > 0)
    is_unknown = F.col("readings").isNull() | (F.col("unknown") > 0) | is_short
    return F.when(is_broken, F.lit(False)).when(~is_unknown, F.lit(True))


def _counts() -> Column:
    return F.col("latency_counts")


def _timestamp(instant_ns: Column) -> Column:
    return F.timestamp_micros(F.call_function("div", instant_ns, F.lit(1_000)))
