"""The law of latency histograms as columns: `model/latency_histogram.py` over arrays of counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from gridstat.model.latency_histogram import BUCKETS, lower_us, upper_us

if TYPE_CHECKING:
    from pyspark.sql import Column


def quantile_us(counts: Column, share: float) -> Column:
    """The latency that this share did not exceed; null where nothing was counted."""
    rank = F.lit(share) * _total(counts).cast("double")
    begin = F.struct(
        F.lit(0).cast("bigint").alias("before"), F.lit(None).cast("double").alias("us")
    )

    def pass_bucket(state: Column, bucket: Column) -> Column:
        count = bucket["count"]
        within = (rank - state["before"]) / count
        found = bucket["lower"] + within * (bucket["upper"] - bucket["lower"])
        is_here = (count > 0) & (state["before"] + count >= rank)
        return F.struct(
            (state["before"] + count).alias("before"),
            F.coalesce(state["us"], F.when(is_here, found)).alias("us"),
        )

    return F.aggregate(_buckets(counts), begin, pass_bucket, lambda state: state["us"])


def longest_us(counts: Column) -> Column:
    """No latency was longer than this, unless it is in the last bucket."""
    filled = F.filter(_buckets(counts), lambda bucket: bucket["count"] > 0)
    return F.array_max(F.transform(filled, lambda bucket: bucket["upper"]))


def sum_counts(counts: Column) -> Column:
    """The sum of many histograms, bucket by bucket; an aggregate."""
    return F.array(*[F.sum(count_at(counts, bucket)) for bucket in range(BUCKETS)])


def count_at(counts: Column, bucket: int) -> Column:
    """Return the count of one bucket; empty buckets at the end, or a whole histogram, may be left
    out."""
    return F.coalesce(F.get(counts, F.lit(bucket)), F.lit(0).cast("bigint"))


def _total(counts: Column) -> Column:
    return F.aggregate(counts, F.lit(0).cast("bigint"), lambda total, count: total + count)


def _buckets(counts: Column) -> Column:
    edges = F.array(
        *[
            F.struct(
                F.lit(float(lower_us(at))).alias("lower"), F.lit(float(upper_us(at))).alias("upper")
            )
            for at in range(BUCKETS)
        ]
    )
    return F.zip_with(
        F.slice(edges, F.lit(1), F.size(counts)),
        counts,
        lambda edge, count: F.struct(
            edge["lower"].alias("lower"), edge["upper"].alias("upper"), count.alias("count")
        ),
    )
