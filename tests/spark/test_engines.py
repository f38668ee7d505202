"""DuckDB, Polars and PyArrow read archive and rollups as Spark does, and reckon the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import EVENTS, ROLLUP_1H, ROLLUP_1M, ROLLUP_1S
from tests.spark.ingest_logs import disturbed, record_events, record_streams, steady
from tests.spark.table_rows import complaint

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

STREAMS = 4
SECONDS = 150
NS_PER_S = 1_000_000_000
NUMBERS = ("record", "stream", "created_ns", "received_ns", "sequence", "flags", "word")
MEASURES = ("count", "mean", "minimum", "maximum", "deviation", "p95", "first", "last")
WINDOWS = {1: ROLLUP_1S, 60: ROLLUP_1M, 3_600: ROLLUP_1H}

DUCK = """
select stream, created_ns // $window as window, count(value) as count, avg(value) as mean,
    min(value) as minimum, max(value) as maximum, stddev_samp(value) as deviation,
    quantile_cont(value, 0.95) as p95, arg_min(value, (created_ns, sequence)) as first,
    arg_max(value, (created_ns, sequence)) as last
from events group by all
"""
pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def folder(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> PipelineFolder:
    """Tables of some minutes in which things came late, twice, and not at all."""
    place = PipelineFolder(tmp_path_factory.mktemp("pipeline"))
    record_streams(place.log, STREAMS)
    record_events(place.log, disturbed(steady(STREAMS, SECONDS), seed=11))
    Ingest(spark, place, IngestSettings(rows_per_batch=1_500, rows_per_share=1)).run_to_end()
    by_polars(place, 60)  # It opens what it keeps for good before anybody counts.
    pl.scan_delta(str(place.tables / EVENTS.name)).collect()
    return place


def archive(folder: PipelineFolder) -> pa.Table:
    return DeltaTable(str(folder.tables / EVENTS.name)).to_pyarrow_dataset().to_table()


def by_duckdb(folder: PipelineFolder, window_s: int) -> pa.Table:
    events = DeltaTable(str(folder.tables / EVENTS.name)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("events", events)
        asked = connection.sql(DUCK, params={"window": window_s * NS_PER_S})
        return asked.to_arrow_table()


def by_polars(folder: PipelineFolder, window_s: int) -> pa.Table:
    paths = DeltaTable(str(folder.tables / EVENTS.name)).file_uris()
    events = pl.scan_parquet(paths, hive_partitioning=False).sort("created_ns", "sequence")
    window = (pl.col("created_ns") // (window_s * NS_PER_S)).alias("window")
    value = pl.col("value")
    grouped = events.group_by("stream", window, maintain_order=True).agg(
        value.count().alias("count"),
        value.mean().alias("mean"),
        value.min().alias("minimum"),
        value.max().alias("maximum"),
        value.std(ddof=1).alias("deviation"),
        value.quantile(0.95, "linear").alias("p95"),
        value.first().alias("first"),
        value.last().alias("last"),
    )
    return grouped.collect().to_arrow()


def by_pyarrow(folder: PipelineFolder, window_s: int) -> pa.Table:
    """Arrow has no exact percentile of groups, so values are listed and NumPy reckons it."""
    order = [("created_ns", "ascending"), ("sequence", "ascending")]
    rows = archive(folder).sort_by(order)
    window = pc.divide(rows.column("created_ns"), window_s * NS_PER_S)
    sample = pc.VarianceOptions(ddof=1)
    grouped = pa.TableGroupBy(
        rows.append_column("window", window), ["stream", "window"], use_threads=False
    ).aggregate(
        [
            ("value", "count"),
            ("value", "mean"),
            ("value", "min"),
            ("value", "max"),
            ("value", "stddev", sample),
            ("value", "list"),
            ("value", "first"),
            ("value", "last"),
        ]
    )
    listed = grouped.column("value_list").to_pylist()
    p95 = pa.array([float(np.quantile(values, 0.95)) for values in listed])
    place = grouped.column_names.index("value_list")
    return grouped.set_column(place, "p95", p95).rename_columns(["stream", "window", *MEASURES])


def stored(folder: PipelineFolder, window_s: int) -> pa.Table:
    """Return Spark's rollup, of windows with events of the stream."""
    table = DeltaTable(str(folder.tables / WINDOWS[window_s].name)).to_pyarrow_dataset().to_table()
    heard = table.filter(pc.greater(table.column("count"), 0))
    start_us = heard.column("window_start").cast(pa.timestamp("us", "UTC")).cast(pa.int64())
    return heard.append_column("window", pc.divide(start_us, window_s * 1_000_000))


def in_order(rows: pa.Table) -> pa.Table:
    chosen = rows.select(["stream", "window", *MEASURES])
    types = {"stream": pa.int32(), "window": pa.int64(), "count": pa.int64()}
    schema = pa.schema([(name, types.get(name, pa.float64())) for name in chosen.column_names])
    return chosen.cast(schema).sort_by([("stream", "ascending"), ("window", "ascending")])


@pytest.mark.parametrize("window_s", WINDOWS)
@pytest.mark.parametrize("engine", [by_duckdb, by_polars, by_pyarrow])
def test_an_engine_reckons_the_rollups_from_the_archive_as_spark_did(
    folder: PipelineFolder, engine: Callable[[PipelineFolder, int], pa.Table], window_s: int
) -> None:
    expected = in_order(stored(folder, window_s))
    assert expected.num_rows >= STREAMS
    assert complaint(in_order(engine(folder, window_s)), expected) is None


def test_a_value_that_is_off_by_a_millionth_is_found(folder: PipelineFolder) -> None:
    expected = in_order(stored(folder, 60))
    place = expected.column_names.index("p95")
    off = pc.multiply(expected.column("p95"), 1.000001)
    assert complaint(expected.set_column(place, "p95", off), expected) == "p95 differs"
    assert complaint(expected.slice(1), expected) is not None


def test_all_engines_read_the_same_archive(spark: SparkSession, folder: PipelineFolder) -> None:
    exactly = [f"sum(cast({name} as decimal(38, 0))) as {name}" for name in NUMBERS]
    asked = ["count(*) as rows", "sum(value) as value", *exactly]
    table = StoredTable(folder.tables, EVENTS)
    by_spark = table.read(spark).selectExpr(*asked).collect()[0]
    dataset = DeltaTable(str(table.folder)).to_pyarrow_dataset()
    with duckdb.connect() as connection:
        connection.register("events", dataset)
        found = connection.execute(f"select {', '.join(asked)} from events").fetchone()
    assert found is not None
    frame = pl.scan_delta(str(table.folder)).collect()
    rows = archive(folder)
    assert by_spark["rows"] == found[0] == frame.height == rows.num_rows
    values = [by_spark["value"], found[1], frame["value"].sum(), pc.sum(rows["value"]).as_py()]
    assert np.allclose(values, values[0], rtol=1e-9, atol=1e-12)
    for place, name in enumerate(NUMBERS, start=2):
        exact = sum(rows[name].to_pylist())
        assert int(by_spark[name]) == int(found[place]) == exact
        assert sum(frame[name].to_list()) == exact
    assert sorted(frame["variable"].unique()) == sorted(pc.unique(rows["variable"]).to_pylist())


@pytest.mark.parametrize("window_s", WINDOWS)
def test_all_engines_read_the_same_rollups(
    spark: SparkSession, folder: PipelineFolder, window_s: int
) -> None:
    schema = WINDOWS[window_s]
    table = StoredTable(folder.tables, schema)
    order = [(name, "ascending") for name in schema.key]
    expected = table.read(spark).toArrow().sort_by(order)
    dataset = DeltaTable(str(table.folder)).to_pyarrow_dataset()
    names = expected.column_names
    with duckdb.connect() as connection:
        connection.register("rollup", dataset)
        ducks = connection.sql("select * from rollup").to_arrow_table()
    polars = pl.scan_delta(str(table.folder)).collect().to_arrow()
    for found in (dataset.to_table(), ducks, polars):
        assert complaint(found.select(names).sort_by(order), expected) is None
