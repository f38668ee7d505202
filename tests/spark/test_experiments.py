"""Tables of experiments from raw samples: the sources' bins, millions of samples, the parts."""

from __future__ import annotations

import tomllib
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.experiments.split import SPLIT
from benchmarks.samples import SAMPLES_SCHEMA, Label, write_samples
from benchmarks.statistics import summary_of
from gridstat.pipeline.experiments import (
    BINS,
    PARTS,
    SUMMARY,
    bins,
    parts,
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
    """As many samples as the source printed in each range, the ends of the range among them."""
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


def traced(count: int) -> pa.Table:
    """Samples with all stamps, each a little after the other."""
    chosen = np.random.default_rng(10)
    steps = chosen.integers(500, 90_000, (6, count)).cumsum(axis=0) + BEGAN_NS
    stamps = ("created_ns", "hop_kernel_ns", "hop_taken_ns", "hop_sent_ns", "kernel_ns")
    columns = dict(zip((*stamps, "received_ns"), steps, strict=True))
    names = {"experiment": "split", "source": "s3", "kind": "reference"}
    return pa.table(
        {name: pa.array([value] * count) for name, value in names.items()}
        | {"run": pa.array([1] * count, pa.int32())}
        | {name: pa.array(values) for name, values in columns.items()}
    ).select(SAMPLES_SCHEMA.names)


def test_kernel_queue_and_local_sum_up_to_the_whole(spark: SparkSession, tmp_path: Path) -> None:
    table = traced(5_000)
    pq.write_table(table, tmp_path / "split.parquet")
    created_ns = BEGAN_NS + np.arange(9)
    write_samples(tmp_path, Label("split", "s3", "untraced", 1), created_ns, created_ns + 1_000)
    samples = read_samples(spark, tmp_path)
    found = {row["part"]: row for row in collected(parts(samples), PARTS)}
    assert {row["kind"] for row in found.values()} == {"reference"}, "others have no parts"
    at = {name: table.column(name).to_numpy() for name in SAMPLES_SCHEMA.names[4:]}
    expected = {
        "end to end": at["received_ns"] - at["created_ns"],
        "queue": at["hop_taken_ns"] - at["hop_kernel_ns"],
        "local": at["hop_sent_ns"] - at["hop_taken_ns"],
    }
    expected["kernel"] = expected["end to end"] - expected["queue"] - expected["local"]
    for name, values_ns in expected.items():
        law = summary_of(values_ns)
        row = found[name]
        told = [row[f"{each}_us"] for each in ("mean", "min", "max", "sd")]
        assert told == pytest.approx([law.mean_us, law.min_us, law.max_us, law.sd_us], rel=1e-9)
    three = [found[name] for name in ("kernel", "queue", "local")]
    whole_us = found["end to end"]["mean_us"]
    assert sum(row["mean_us"] for row in three) == pytest.approx(whole_us, rel=1e-12)
    assert sum(row["share"] for row in three) == pytest.approx(1.0, rel=1e-12)

    (row,) = [one for one in collected(summaries(samples), SUMMARY) if one["kind"] == "reference"]
    law = summary_of(expected["end to end"])
    assert [row[f"{name}_us"] for name in ("mean", "sd", "p50", "p90", "p99")] == pytest.approx(
        [law.mean_us, law.sd_us, law.p50_us, law.p90_us, law.p99_us], rel=1e-9, abs=1e-12
    )


@pytest.mark.feature("S3-89")
def test_the_kernels_stamps_split_what_an_event_took_and_the_parts_sum_up(
    spark: SparkSession, tmp_path: Path
) -> None:
    result = SPLIT.run(
        {"runs": 1, "seconds": 0.2, "tick_ms": 5, "samples": str(tmp_path)}, lambda *_: None
    )
    assert result.figures["lost"] == 0
    (path,) = tmp_path.iterdir()
    table = pq.read_table(path)
    at = {name: table.column(name).to_numpy() for name in SAMPLES_SCHEMA.names[4:9]}
    order = ("created_ns", "hop_kernel_ns", "hop_taken_ns", "hop_sent_ns", "received_ns")
    for earlier, later in pairwise(order):
        assert (at[earlier] <= at[later]).all(), f"{later} is never before {earlier}"
    found = {row["part"]: row for row in collected(parts(read_samples(spark, tmp_path)), PARTS)}
    assert {row["samples"] for row in found.values()} == {table.num_rows}
    whole_us = found["end to end"]["mean_us"]
    three = [found[name]["mean_us"] for name in ("kernel", "queue", "local")]
    assert sum(three) == pytest.approx(whole_us, rel=1e-9)
    assert min(three) > 0
    assert result.figures["local_mean_us"] == pytest.approx(three[2], abs=0.06)
