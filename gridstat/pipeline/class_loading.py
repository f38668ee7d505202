"""A process that uses a little of everything in Spark, so that an archive has all its classes.

Started by `class_archive.py`; Java writes the archive as it ends, so it is awaited.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import functions

from gridstat.pipeline.spark_session import SparkSettings, spark_session
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS, STREAMS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROLLUP = (
    "count(*) as count",
    "avg(value) as mean",
    "stddev_samp(value) as deviation",
    "percentile(value, 0.95) as p95",
    "min_by(value, created_ns) as first",
)


def main(folder: Path, archive: Path) -> None:
    options = f"-XX:ArchiveClassesAtExit={archive}"
    settings = SparkSettings(cache=folder, java_options=options, has_archive=False)
    spark = spark_session(settings)
    record_one_event(folder / "log")
    use(spark, folder)
    gateway = SparkContext._gateway  # noqa: SLF001 - The only way to the process of Java.
    spark.stop()
    if gateway is not None:
        gateway.proc.stdin.close()
        gateway.proc.wait()


def record_one_event(log: Path) -> None:
    stream = {"stream": 0, "variable": "v", "value_type": "float64"}
    event = dict.fromkeys(EVENTS.schema.names, 0)
    for kind, row in (STREAMS, stream), (EVENTS, {**event, "options": None}):
        numbers = {name: 0 for name in kind.schema.names if name not in row}
        with LogWriter(log, kind, now_ns=lambda: 0) as writer:
            writer.append(pa.RecordBatch.from_pylist([{**numbers, **row}], schema=kind.schema))


def use(spark: SparkSession, folder: Path) -> None:
    def take(batch: DataFrame, number: int) -> None:
        window = batch.groupBy("stream", "created")
        found = window.agg({"value": "max"}).join(batch, on="stream", how="left").toArrow()
        file = str(folder / f"{number}.parquet")
        spark.createDataFrame(found.to_pandas()).coalesce(1).write.parquet(file)
        spark.read.parquet(file).dropDuplicates(["stream"]).count()

    log = str(folder / "log")
    recorded = spark.read.format("gridstat").load(log).filter("variable = 'v'")
    recorded.groupBy("stream").agg(*(functions.expr(text) for text in ROLLUP)).collect()
    stream = spark.readStream.format("gridstat").load(log).writeStream.foreachBatch(take)
    stream = stream.option("checkpointLocation", str(folder / "checkpoint"))
    stream.trigger(availableNow=True).start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
