"""Tables of experiments from raw samples: the sources' bins, and millions of samples."""

from __future__ import annotations

import tomllib
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from benchmarks.experiments.distribution import (
    DISTRIBUTION,
    Counted,
    bin_counts,
    measure_with,
)
from benchmarks.pipeline_driver import count_bins
from benchmarks.samples import Label, write_samples
from benchmarks.statistics import summary_of
from gridstat.model.errors import LayoutError
from gridstat.pipeline.experiments import (
    BINS,
    SUMMARY,
    bins,
    read_samples,
    summaries,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

GOLDEN = Path(__file__).parent.parent / "golden" / "latency_bins.toml"
BEGAN_NS = 1_790_000_000 * 10**9
MILLION = 1_000_000


def collected(frame: DataFrame, columns: str) -> list[dict[str, Any]]:
    assert ", ".join(f"{name} {kind}" for name, kind in frame.dtypes) == columns
    return [row.asDict() for row in frame.collect()]


def printed_latencies_ns(table: Sequence[tuple[str, int, float]]) -> np.ndarray[Any, Any]:
    """Return as many samples as the source printed in each range, including its ends."""
    found = []
    for name, count, _ in table:
        lower, upper = map(int, name.split("-"))
        found.append(np.linspace(lower * 1_000, upper * 1_000 + 999, count).astype(np.int64))
    return np.concatenate(found)


@pytest.mark.feature("S3-87")
@pytest.mark.parametrize("name", ["c", "java"])
def test_the_bins_of_the_source_are_printed_again(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    golden = next(
        one for one in tomllib.loads(GOLDEN.read_text())["routers"] if one["name"] == name
    )
    latencies_ns = printed_latencies_ns(golden["bins"])
    created_ns = BEGAN_NS + np.arange(len(latencies_ns)) * 10_000_000
    label = Label("base", "s3", name, run=1)
    write_samples(tmp_path, label, created_ns, created_ns + latencies_ns)
    found = collected(bins(read_samples(spark, tmp_path), golden["uppers_us"]), BINS)
    assert [(row["range"], row["samples"]) for row in found] == [
        (range_, count) for range_, count, _ in golden["bins"]
    ]
    assert sum(row["samples"] for row in found) == golden["total"]
    assert sum(row["percent"] for row in found) == pytest.approx(100.0, rel=1e-12)
    assert found[-1]["percent_to"] == 100.0
    for row, (_, count, percent) in zip(found, golden["bins"], strict=True):
        assert row["percent"] == pytest.approx(100 * count / golden["total"], rel=1e-12)
        assert abs(row["percent"] - percent) < 10 ** -golden["digits"], "as far as it is printed"


@pytest.mark.feature("S3-88")
def test_ten_million_samples_are_summed_up_without_one_left_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    chosen = np.random.default_rng(9)
    counts: dict[int, int] = {}
    for part in range(10):
        latencies_us = chosen.integers(1, 1_201, MILLION)
        created_ns = BEGAN_NS + (np.arange(MILLION) + part * MILLION) * 1_000
        write_samples(
            tmp_path,
            Label("load", "s3", "core", run=part),
            created_ns,
            created_ns + latencies_us * 1_000,
        )
        uppers, found = np.unique(-(-latencies_us // 100) * 100, return_counts=True)
        for upper, count in zip(uppers.tolist(), found.tolist(), strict=True):
            counts[upper] = counts.get(upper, 0) + count
    rows = collected(bins(read_samples(spark, tmp_path)), BINS)
    assert {row["upper_us"]: row["samples"] for row in rows} == counts
    assert sum(row["samples"] for row in rows) == 10 * MILLION
    assert [row["range"] for row in rows[:2]] == ["1-100", "101-200"]


@pytest.mark.feature("S3-87")
def test_the_distribution_of_real_events_is_counted_alike_by_spark_and_directly(
    spark: SparkSession,
) -> None:
    options = {"runs": 2, "seconds": 0.2, "large": 1_500_000, "awake": 0}
    measure = partial(measure_with, lambda _: nullcontext(partial(count_bins, spark)))
    result = replace(DISTRIBUTION, measure=measure).run(options, lambda *_: None)
    figures = result.figures
    # A busy machine may lose an event on its way: what is counted is what arrived.
    assert figures["runs"] == 2
    for prefix in ("", "large_"):
        assert figures[f"{prefix}bins_samples"] == figures[f"{prefix}samples"]
        assert figures[f"{prefix}bins_equal_direct_count"] == "yes"
        assert figures[f"{prefix}bins_percent_sum"] == pytest.approx(100.0, abs=1e-6)
    assert figures["large_samples"] == 1_500_000
    assert int(figures["samples"]) > 0
    assert sum(int(row[1]) for row in result.table) == figures["samples"]
    assert DISTRIBUTION.parameters[3].default == 10 * MILLION, "what S3-88 asks for"
    printed = {item.figure: item for item in result.comparisons}
    assert printed["within_200_us_percent"].theirs == pytest.approx(96.504)


def test_a_count_that_spark_and_numpy_disagree_on_is_told() -> None:
    rows = [{"upper_us": 100, "samples": 3, "percent": 100.0}]
    figures = Counted(rows, 1.0, direct={100: 2, 200: 1}).figures("")
    assert figures["bins_equal_direct_count"] == "no"
    assert bin_counts(np.array([1, 100_999, 101_000, 200_999, 201_000])) == {100: 2, 200: 2, 300: 1}


def test_more_events_in_a_run_than_are_kept_are_refused() -> None:
    with pytest.raises(LayoutError, match="too long"):
        DISTRIBUTION.run({"seconds": 600.0}, lambda *_: None)


def test_the_summary_of_a_cell_is_that_of_its_samples(spark: SparkSession, tmp_path: Path) -> None:
    created_ns = BEGAN_NS + np.arange(5_000) * 1_000_000
    latencies_ns = np.random.default_rng(10).integers(500, 540_000, 5_000)
    write_samples(tmp_path, Label("base", "s3", "cloud", 1), created_ns, created_ns + latencies_ns)
    (row,) = collected(summaries(read_samples(spark, tmp_path)), SUMMARY)
    law = summary_of(latencies_ns)
    fields = ("mean_us", "min_us", "max_us", "sd_us", "p50_us", "p90_us", "p99_us")
    assert [row[name] for name in fields] == pytest.approx(
        [getattr(law, name) for name in fields], rel=1e-9, abs=1e-12
    )
    assert row["samples"] == 5_000
