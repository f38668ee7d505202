"""Tables: marks travel with rows, upserts replace, and maintenance changes nothing that is read."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from gridstat.model.errors import StorageFailed
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.compact import CompactSettings, compact
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import TableSchema
from gridstat.record.archive_mark import archived_before
from gridstat.record.record_kinds import EVENTS
from tests.spark.ingest_logs import disturbed, record_events, record_streams, steady
from tests.spark.ingest_tables import check_records, check_rollups

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
SMALL = TableSchema("small", "name string, at timestamp, number bigint, day date", ("name", "at"))


def rows(*numbers: int) -> pa.Table:
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    return pa.Table.from_pylist(
        [
            {"name": f"n{number % 10}", "at": at, "number": number, "day": date(2023, 11, 14)}
            for number in numbers
        ]
    )


def numbers_of(stored: StoredTable, spark: SparkSession) -> list[int]:
    return sorted(row.number for row in stored.read(spark).collect())


def test_an_upsert_replaces_rows_of_the_same_key_and_adds_the_others(
    spark: SparkSession, tmp_path: Path
) -> None:
    stored = StoredTable(tmp_path, SMALL)
    stored.append(rows(1, 2), {"record": 5})
    stored.upsert(rows(12, 13), "at", {"record": 7})
    assert numbers_of(stored, spark) == [1, 12, 13]
    assert StoredTable(tmp_path, SMALL).mark("record") == 7


def test_marks_are_seen_without_rows_too(spark: SparkSession, tmp_path: Path) -> None:
    stored = StoredTable(tmp_path, SMALL)
    assert stored.mark("record") is None
    stored.add_files([], "", {"record": 3})
    stored.upsert(rows(), "at", {"closed": 4})
    assert (stored.mark("record"), stored.mark("closed"), stored.rows()) == (3, 4, 0)
    assert numbers_of(stored, spark) == []


def test_a_table_with_columns_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    StoredTable(tmp_path, TableSchema("small", f"{SMALL.columns}, colour string", SMALL.key))
    with pytest.raises(StorageFailed, match="colour"):
        StoredTable(tmp_path, SMALL)


def test_compacting_changes_no_row_and_lets_go_of_the_log(
    spark: SparkSession, tmp_path: Path
) -> None:
    folder = PipelineFolder(tmp_path)
    record_streams(folder.log, 3)
    made = disturbed(steady(3, 70), seed=4)
    record_events(folder.log, made[: len(made) // 2])
    Ingest(spark, folder, IngestSettings(rows_per_batch=200, rows_per_share=1)).run_to_end()
    orphan = folder.tables / "events" / "day=2023-11-14" / "orphan.parquet"
    orphan.write_bytes(b"of a driver that was killed")
    fresh = orphan.with_name("fresh.parquet")
    fresh.write_bytes(b"of a driver that has yet to commit it")
    two_hours_ago_s = time.time() - 7_200
    os.utime(orphan, (two_hours_ago_s, two_hours_ago_s))
    done = {each.table: each for each in compact(folder, CompactSettings(hours_kept=1))}
    assert done["events"].files_after < done["events"].files_before
    assert not orphan.exists()
    assert fresh.exists()
    assert archived_before(folder.log, EVENTS) == len(made) // 2
    record_events(folder.log, made[len(made) // 2 :])
    Ingest(spark, folder).run_to_end()
    check_records(folder, made, 3)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, made, 3, window_s)
