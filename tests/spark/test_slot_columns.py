"""The laws of slots and histograms, as columns and in Python: the same numbers, all of them."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F

from gridstat.model import due_slots, latency_histogram, rate_law
from gridstat.model.rate_law import Period
from gridstat.pipeline import histogram_columns, slot_columns

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW_NS = 1_790_000_000 * 10**9
PERIODS = [(1, 30), (1, 3), (7, 5), (1, 1), (3600, 1), (1, 4096), (1001, 30_000), (1, 10**8)]


def slot_cases() -> list[tuple[int, int, int, int, int, int]]:
    chosen = random.Random(4)
    cases = []
    for seconds, per_seconds in PERIODS:
        period = Period(seconds, per_seconds)
        for _ in range(12):
            phase_ns = chosen.randrange(10**9)
            slot = chosen.randrange(10**6)
            edge_ns = phase_ns + round((slot + 0.5) * float(period.period_ns))
            for instant_ns in (edge_ns, edge_ns - 1, chosen.randrange(-NOW_NS, 2 * NOW_NS)):
                length_ns = chosen.randrange(-5, 10**13)
                every = chosen.randrange(1, 9)
                cases.append(
                    (instant_ns, length_ns, period.seconds, period.per_seconds, phase_ns, every)
                )
    return cases


def test_slots_are_those_of_the_law_to_the_nanosecond(spark: SparkSession) -> None:
    cases = slot_cases()
    names = "at bigint, length bigint, period_seconds bigint, period_per_seconds bigint, "
    frame = spark.createDataFrame(cases, names + "phase_ns bigint, every bigint")
    at, slots = F.col("at"), slot_columns.named()
    slot = slot_columns.slot_of(at, slots)
    found = frame.select(
        slot,
        slot_columns.first_slot_from(at, slots),
        slot_columns.slot_instant_ns(F.lit(-3) + F.col("every") * 1_000, slots),
        slot_columns.due_between(at, at + F.col("length"), slots, F.col("every")),
    ).collect()
    for case, row in zip(cases, found, strict=True):
        instant_ns, length_ns, seconds, per_seconds, phase_ns, every = case
        period = Period(seconds, per_seconds)
        assert tuple(row) == (
            rate_law.slot_of(instant_ns, period, phase_ns),
            due_slots.first_slot_from(instant_ns, period, phase_ns),
            due_slots.slot_instant_ns(every * 1_000 - 3, period, phase_ns),
            due_slots.due_between(
                instant_ns, instant_ns + length_ns, period, every=every, phase_ns=phase_ns
            ),
        ), case


def test_a_period_that_needs_more_than_64_bits_has_no_slots_rather_than_wrong_ones(
    spark: SparkSession,
) -> None:
    names = "period_seconds bigint, period_per_seconds bigint, phase_ns bigint"
    frame = spark.createDataFrame(
        [(10**6, 999_999, 0), (2**32 - 1, 2**32 - 1, 5), (1, 2**32 - 1, 5)], names
    )
    at, slots = F.lit(NOW_NS), slot_columns.named()
    found = frame.select(
        slot_columns.slot_of(at, slots),
        slot_columns.first_slot_from(at, slots),
        slot_columns.slot_instant_ns(at, slots),
        slot_columns.due_between(at, at + F.lit(10**9), slots, F.lit(1)),
    ).collect()
    assert [tuple(row) for row in found] == [(None, None, None, None)] * 3


def test_quantiles_of_histograms_are_those_of_the_law(spark: SparkSession) -> None:
    chosen = random.Random(5)
    cases = [[], [0, 0], [7], [0] * 23 + [4]]
    for _ in range(60):
        size = chosen.randrange(1, latency_histogram.BUCKETS + 1)
        cases.append([chosen.choice((0, 0, 1, 50, 10**9)) for _ in range(size)])
    frame = spark.createDataFrame([(case,) for case in cases], "counts array<bigint>")
    counts, shares = F.col("counts"), (0.01, 0.5, 0.95, 0.999, 1.0)
    columns = [histogram_columns.quantile_us(counts, share) for share in shares]
    found = frame.select(*columns, histogram_columns.longest_us(counts)).collect()
    for case, row in zip(cases, found, strict=True):
        for share, told in zip(shares, row[:-1], strict=True):
            expected = latency_histogram.quantile_us(case, share)
            assert told == (expected if expected is None else pytest.approx(expected, rel=1e-12))
        assert row[-1] == latency_histogram.longest_us(case)
