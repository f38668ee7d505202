"""A driver of its own: ingests a log on a cluster that its test has started.

A process has one Spark session, and that of the tests runs on this machine alone.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.spark_session import SparkSettings, spark_session


def main(words: list[str]) -> None:
    folder, log, rows, told = words
    named = json.loads(told)
    wanted = replace(SparkSettings(), **{**named, "properties": Path(named["properties"])})
    spark = spark_session(wanted)
    place = PipelineFolder(Path(folder), Path(log))
    Ingest(spark, place, IngestSettings(rows_per_batch=int(rows), rows_per_share=1)).run_to_end()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
