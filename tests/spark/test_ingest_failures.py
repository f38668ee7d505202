"""Ingest when the world fails: a plain error, and after the repair nothing is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import DamagedLog, StorageFailed
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS
from lab.pipeline.driver import MORE
from lab.pipeline.killing import END_S_MAX, driver, finish
from tests.spark.ingest_logs import disturbed, record_events, record_streams, steady
from tests.spark.ingest_tables import check_records, check_rollups, table

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.spark.ingest_logs import Made

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STREAMS = 4


@pytest.fixture
def rows() -> list[Made]:
    return disturbed(steady(STREAMS, 8), seed=9)


@pytest.fixture
def folder(tmp_path: Path, rows: list[Made]) -> PipelineFolder:
    place = PipelineFolder(tmp_path)
    record_streams(place.log, STREAMS)
    record_events(place.log, rows, rows_per_frame=20)
    return place


def ingest(spark: SparkSession, folder: PipelineFolder, rows: int = 1_000_000) -> None:
    Ingest(spark, folder, IngestSettings(rows_per_batch=rows, rows_per_share=1)).run_to_end()


def test_a_damaged_segment_stops_the_query_and_its_repair_brings_the_rest(
    spark: SparkSession, folder: PipelineFolder, rows: list[Made]
) -> None:
    reader = LogReader(folder.log, EVENTS)
    (piece,) = reader.slices(*reader.ends(), 1_000_000)[-1:]
    segment = folder.log / "events" / f"{piece.segment:020d}.segment"
    sound = segment.read_bytes()
    place = len(sound) * 3 // 4
    segment.write_bytes(sound[:place] + bytes([sound[place] ^ 1]) + sound[place + 1 :])
    with pytest.raises(DamagedLog, match="damaged frame"):
        ingest(spark, folder, rows=60)
    archived = table(folder, "events").num_rows
    assert 0 < archived < len(rows)
    segment.write_bytes(sound)
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)
    check_rollups(folder, rows, STREAMS, 1)


def test_a_table_that_takes_no_files_stops_the_query_and_nothing_is_lost(
    spark: SparkSession, folder: PipelineFolder, rows: list[Made]
) -> None:
    day = folder.tables / "events" / "day=2023-11-14"
    day.parent.mkdir(parents=True)
    day.touch()
    with pytest.raises(StorageFailed, match="events"):
        ingest(spark, folder)
    assert table(folder, "events").num_rows == 0
    day.unlink()
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)
    check_rollups(folder, rows, STREAMS, 1)


def test_a_table_of_a_newer_release_is_left_alone(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    ingest(spark, folder)
    first = folder.tables / "rollup_1m" / "_delta_log" / "00000000000000000000.json"
    first.write_text(first.read_text().replace('"gridstat.version":"1"', '"gridstat.version":"2"'))
    with pytest.raises(StorageFailed, match="rollup_1m is of version 2"):
        Ingest(spark, folder)


def test_two_drivers_do_not_share_a_folder(spark: SparkSession, folder: PipelineFolder) -> None:
    with folder.lock("ingest"), pytest.raises(StorageFailed, match="another pipeline"):
        ingest(spark, folder)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_full_disk_ends_the_driver_with_a_plain_message_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    folder = PipelineFolder(tmp_path)
    many = steady(STREAMS, 500)
    record_streams(folder.log, STREAMS)
    record_events(folder.log, many, rows_per_frame=5_000)
    (tmp_path / MORE).touch()
    with driver(folder, 1_000_000, file_bytes_max=100_000) as process:
        assert process.wait(END_S_MAX) == 1
    told = (tmp_path / "driver.log").read_text()
    assert "StorageFailed: File too large" in told
    assert "nothing is lost" in told
    finish(folder, 1_000_000)
    check_records(folder, many, STREAMS)
    check_rollups(folder, many, STREAMS, 60)
