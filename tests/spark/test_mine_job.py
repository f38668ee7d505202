"""Mining a real folder: every table is made, and made anew."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.mine import MineSettings, run_mine
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import ANOMALIES, BOTTLENECKS, CORRELATIONS, ROLLUP_1M, ROLLUP_1S
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import COUNTERS
from tests.spark.table_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from gridstat.pipeline.schemas import TableSchema

pytestmark = pytest.mark.timeout(300)

BEGAN = datetime(2026, 3, 2, 7, tzinfo=UTC)
WINDOWS = 50
LEAPS = {("a/x", 7): 900.0, ("a/y", 9): 40.0}


def roll(folder: PipelineFolder, table: TableSchema, window_s: int) -> None:
    """Two variables that rise and fall together, each with a leap, one of them far higher."""
    rows: list[dict[str, Any]] = []
    for number in range(WINDOWS):
        start = BEGAN + timedelta(seconds=number * window_s)
        for variable, value in (("a/x", 50 + number % 5), ("a/y", 10 - number % 5)):
            mean = LEAPS.get((variable, number), float(value))
            rows.append(
                {
                    "variable": variable,
                    "stream": 1,
                    "window_start": start,
                    "window_s": window_s,
                    "count": 3,
                    "expected": 3,
                    "completeness": 1.0,
                    "mean": mean,
                    "minimum": mean,
                    "maximum": mean,
                    "deviation": 0.0,
                    "day": start.date(),
                }
            )
    stored = StoredTable(folder.tables, table)
    stored.append(pa.Table.from_pylist(rows, schema=stored.empty().schema))


def test_every_table_of_the_history_is_made_anew(spark: SparkSession, tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    folder.log.mkdir()
    roll(folder, ROLLUP_1M, 60)
    roll(folder, ROLLUP_1S, 1)
    counters = [
        {"router": "e1", "channel": "e1>e2", "counter": name, "time_ns": at, "value": value}
        for at in (10**9, 3 * 10**9)
        for name, value in (("due", at // 10**7), ("sent", at // 10**7), ("bytes_out", at // 10**6))
    ]
    with LogWriter(folder.log, COUNTERS, now_ns=lambda: 1) as log:
        log.append(pa.RecordBatch.from_pylist(counters, schema=COUNTERS.schema))
        log.sync()
    old = StoredTable(folder.tables, BOTTLENECKS)
    row = {"router": "e9", "channel": "e9>e1"}
    old.append(pa.Table.from_pylist([row], schema=old.empty().schema))

    made = {"averages": 6, "profiles": 4, "anomalies": 1, "correlations": 1, "bottlenecks": 1}
    assert run_mine(spark, folder, MineSettings(score_limit=100.0)) == made
    (together,) = rows_of(folder.tables, CORRELATIONS).to_pylist()
    assert (together["variable"], together["other"], together["seconds"]) == ("a/x", "a/y", WINDOWS)
    (narrow,) = rows_of(folder.tables, BOTTLENECKS).to_pylist()
    assert narrow["channel"] == "e1>e2", "what history no longer tells is gone"
    assert (narrow["due"], narrow["bytes_per_s_mean"]) == (200, 1_000.0)
    (odd,) = rows_of(folder.tables, ANOMALIES).to_pylist()
    assert (odd["variable"], odd["value"]) == ("a/x", 900.0), "the other leap is below the limit"
