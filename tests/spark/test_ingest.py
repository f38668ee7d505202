"""Ingest: all that was recorded is archived or quarantined once, and every window is right."""

from __future__ import annotations

import shutil
import threading
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from gridstat.model.errors import RecordsGone, StorageFailed
from gridstat.model.plausibility import TimeBounds
from gridstat.pipeline.archive import Archive
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.compact import release
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.rollup_windows import Rollups
from gridstat.pipeline.slice_source import slice_rows
from gridstat.record.archive_mark import archived_before
from gridstat.record.log_reader import LogReader
from gridstat.record.log_writer import LogWriter
from gridstat.record.record_kinds import EVENTS as RECORDED
from tests.cluster.eventually import eventually
from tests.spark.ingest_logs import (
    BEGAN_S,
    disturbed,
    event_batch,
    judged,
    record_events,
    record_streams,
    rolled_up,
    steady,
)
from tests.spark.ingest_tables import NAMES, check_records, check_rollups, table
from tests.spark.made_logs import open_log

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.file_rows import FileRows
    from gridstat.pipeline.time_spans import Spans

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
STREAMS = 4
AN_HOUR_NS = 3_600_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> PipelineFolder:
    place = PipelineFolder(tmp_path)
    record_streams(place.log, STREAMS)
    return place


def ingest(spark: SparkSession, folder: PipelineFolder, rows: int = 1_000_000) -> Ingest:
    job = Ingest(spark, folder, IngestSettings(rows_per_batch=rows, rows_per_share=1))
    job.run_to_end()
    return job


def test_late_repeated_and_bad_events_end_where_they_belong(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = disturbed(steady(STREAMS, 70), seed=7)
    record_events(folder.log, rows)
    ingest(spark, folder, rows=400)
    check_records(folder, rows, STREAMS)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, rows, STREAMS, window_s)


def test_a_stop_flushes_open_windows_and_a_new_start_goes_on_with_them(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = disturbed(steady(STREAMS, 12), seed=3)
    half = len(rows) // 2
    record_events(folder.log, rows[:half])
    ingest(spark, folder)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, rows[:half], STREAMS, window_s)
    assert table(folder, "rollup_live").num_rows == 0
    record_events(folder.log, rows[half:])
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, rows, STREAMS, window_s)


def test_a_clock_that_jumped_ahead_closes_no_window_of_others(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = steady(STREAMS, 4)
    jumped = [
        row if row.stream else type(row)(0, row.created_ns + 10**13, row.received_ns, 0, 1.0)
        for row in rows
    ]
    record_events(folder.log, jumped)
    job = Ingest(spark, folder)
    job.run_to_end(has_flush=False)
    newest_s = max(row.created_ns for row in rows) // 10**9
    assert job.rollups.closed_s == newest_s - 2
    reasons = table(folder, "quarantine").column("reason").to_pylist()
    assert reasons == ["implausible_time"] * 20


def test_clocks_that_jump_ahead_and_back_hold_up_neither_rollups_nor_the_log(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = steady(STREAMS, 130)
    jumped = [
        replace(
            row, created_ns=row.created_ns + AN_HOUR_NS, received_ns=row.received_ns + AN_HOUR_NS
        )
        if 100 <= number < 200
        else row
        for number, row in enumerate(rows)
    ]
    record_events(folder.log, jumped)
    job = Ingest(spark, folder, IngestSettings(rows_per_batch=600))
    hours = count()
    job.rollups.now_s = lambda: next(hours) * 3_600.0
    job.run_to_end(has_flush=False)
    assert job.rollups.taken() == len(rows)
    for window_s, name in NAMES.items():
        wanted = rolled_up(jumped, STREAMS, window_s)["count"]
        found = table(folder, name).to_pandas().set_index(["stream", "window_start"])["count"]
        ended = wanted[wanted.index.get_level_values("start_s") < BEGAN_S + 1_000]
        for (stream, start_s), events in ended.items():
            assert found[stream, pd.Timestamp(start_s, unit="s", tz="UTC")] == events
    job.rollups.flush(spark)
    for window_s in NAMES:
        check_rollups(folder, jumped, STREAMS, window_s)


def test_what_comes_while_a_minute_is_read_counts_as_unseen(
    spark: SparkSession, folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = steady(STREAMS, 70)
    record_events(folder.log, rows)
    job = Ingest(spark, folder)
    job.run_to_end(has_flush=False)
    marks: list[int] = []
    read, append = Archive.rows, StoredTable.append

    def read_slowly(archive: Archive, spans_ns: Spans) -> FileRows:
        found = read(archive, spans_ns)
        monkeypatch.setattr(Archive, "taken", len(rows) + 1_000)
        return found

    def append_noted(stored: StoredTable, fresh: pa.Table, told: Mapping[str, int]) -> None:
        marks.append(told["record"])
        append(stored, fresh, told)

    monkeypatch.setattr(Archive, "rows", read_slowly)
    monkeypatch.setattr(StoredTable, "append", append_noted)
    job.rollups.advance_coarse(spark, (BEGAN_S + 180) * 1_000_000_000)
    assert marks[0] == len(rows)


def test_batches_go_on_while_a_minute_is_reckoned_and_a_stop_waits_for_it(
    spark: SparkSession, folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = steady(STREAMS, 130)
    half = len(rows) // 2
    begun, may_end, is_drained, stop = (threading.Event() for _ in range(4))
    advance, advance_rest = Rollups.advance_coarse, Ingest._advance_rest

    def advance_slowly_at_first(*words: Any) -> None:
        if not begun.is_set():
            begun.set()
            assert may_end.wait(300)
        advance(*words)

    def advance_rest_noted(job: Ingest) -> None:
        is_drained.set()
        advance_rest(job)

    monkeypatch.setattr(Rollups, "advance_coarse", advance_slowly_at_first)
    monkeypatch.setattr(Ingest, "_advance_rest", advance_rest_noted)
    job = Ingest(spark, folder)
    record_events(folder.log, rows[:half])
    running = threading.Thread(target=job.run, args=(stop,))
    running.start()
    assert begun.wait(300)
    record_events(folder.log, rows[half:])

    def not_all_taken() -> str | None:
        taken = job.archive.taken
        return None if taken == len(rows) else f"{taken} of {len(rows)} taken"

    eventually(not_all_taken, within_s=300)
    assert table(folder, "rollup_1m").num_rows == 0
    stop.set()
    assert is_drained.wait(300)
    running.join(3)
    assert running.is_alive()
    assert folder.is_running("ingest")
    may_end.set()
    running.join()
    check_records(folder, rows, STREAMS)
    for window_s in NAMES:
        check_rollups(folder, rows, STREAMS, window_s)


def test_minutes_that_a_killed_driver_left_are_reckoned_though_nothing_new_is_recorded(
    spark: SparkSession, folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_events(folder.log, steady(STREAMS, 130))
    with monkeypatch.context() as killed:
        killed.setattr(Rollups, "advance_coarse", lambda *_: None)
        Ingest(spark, folder).run_to_end(has_flush=False)
    assert table(folder, "rollup_1m").num_rows == 0
    Ingest(spark, folder).run_to_end(has_flush=False)
    assert table(folder, "rollup_1m").num_rows == 2 * STREAMS


@pytest.mark.parametrize("released", [100, 200])
def test_a_batch_that_comes_again_may_have_been_let_go_of_by_the_log(
    spark: SparkSession, folder: PipelineFolder, released: int
) -> None:
    """Killed after all tables had it and before Spark knew: then compacted, and released."""
    rows = steady(STREAMS, 20)
    with open_log(folder.log) as log:
        for start in (0, 100):
            log.append(event_batch(rows[start : start + 100]))
            log.rotate()
    ingest(spark, folder)
    (folder.checkpoint("ingest") / "commits" / "0").unlink()
    with open_log(folder.log) as log:
        log.append(event_batch(rows[200:210]))
        log.sync()
        assert log.release(released)
    assert LogReader(folder.log, RECORDED).ends()[0] == released
    record_events(folder.log, rows[210:])
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)
    check_rollups(folder, rows, STREAMS, 1)


def test_records_that_are_gone_before_they_were_archived_are_told(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = steady(STREAMS, 20)
    with open_log(folder.log) as log:
        for start in (0, 100, 200):
            log.append(event_batch(rows[start : start + 100]))
            log.rotate()
    archive = Archive(folder, TimeBounds())
    assert archive.take(slices(spark, folder, 0, 100), None) == 100
    with open_log(folder.log) as log:
        assert log.release(200)
    with pytest.raises(RecordsGone, match="begins at record 200, and the archive ends before 100"):
        archive.take(slices(spark, folder, 200, 300), None)
    assert archive.taken == 100


def slices(spark: SparkSession, folder: PipelineFolder, start: int, end: int) -> DataFrame:
    reader = LogReader(folder.log, RECORDED)
    rows = slice_rows(0, 1, reader.slices(start, end, end - start))
    return spark.createDataFrame(pa.table(rows))


@pytest.mark.parametrize("has_tables", [True, False])
def test_tables_that_are_older_than_the_checkpoint_are_told_and_nothing_is_left_out(
    spark: SparkSession, folder: PipelineFolder, has_tables: bool
) -> None:
    """A power cut may take the last commits, and a person the tables."""
    rows = steady(STREAMS, 15)
    record_events(folder.log, rows[:100])
    ingest(spark, folder)
    shutil.copytree(folder.tables, folder.path / "kept")
    record_events(folder.log, rows[100:200])
    ingest(spark, folder)
    shutil.rmtree(folder.tables)
    if has_tables:
        (folder.path / "kept").rename(folder.tables)
    record_events(folder.log, rows[200:])
    with pytest.raises(StorageFailed, match="older than the checkpoint") as told:
        ingest(spark, folder)
    assert "checkpoints/ingest" in told.value.hint
    shutil.rmtree(folder.checkpoint("ingest"))
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)


@pytest.mark.parametrize("recorded", [60, 240])
def test_another_log_in_the_same_folder_is_neither_taken_nor_released(
    spark: SparkSession, folder: PipelineFolder, recorded: int
) -> None:
    """Replace the log: by its numbers alone it was taken for archived, and removed."""
    rows = steady(STREAMS, 15)
    record_events(folder.log, rows[:100])
    ingest(spark, folder)
    shutil.rmtree(folder.log / RECORDED.name)
    with LogWriter(folder.log, RECORDED, now_ns=lambda: (BEGAN_S + 9) * 10**9) as log:
        log.append(event_batch(rows[:recorded]))
    shutil.rmtree(folder.checkpoint("ingest"))
    with pytest.raises(StorageFailed, match="is not the log that was archived"):
        ingest(spark, folder)
    with pytest.raises(StorageFailed, match="is not the log that was archived"):
        release(folder)
    assert archived_before(folder.log, RECORDED) == 0


def test_open_seconds_are_shown_before_they_are_final(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = steady(STREAMS, 5)
    record_events(folder.log, rows)
    job = Ingest(spark, folder)
    job.run_to_end(has_flush=False)
    final = {int(at.timestamp()) for at in table(folder, "rollup_1s")["window_start"].to_pylist()}
    live = {int(at.timestamp()) for at in table(folder, "rollup_live")["window_start"].to_pylist()}
    seconds = {row.created_ns // 10**9 for row in rows}
    assert final | live == seconds
    assert not final & live
    assert max(live) == max(seconds)
    assert job.rollups.closed_s is not None
    assert max(final) < job.rollups.closed_s <= min(live)


def test_a_lost_checkpoint_brings_nothing_in_twice(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = disturbed(steady(STREAMS, 8), seed=5)
    record_events(folder.log, rows[:100])
    ingest(spark, folder)
    folder.checkpoint("ingest").rename(folder.path / "lost")
    record_events(folder.log, rows[100:])
    ingest(spark, folder)
    check_records(folder, rows, STREAMS)
    check_rollups(folder, rows, STREAMS, 1)


def test_a_kill_between_two_commits_and_a_lost_checkpoint_lose_nothing(
    spark: SparkSession, folder: PipelineFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = disturbed(steady(STREAMS, 40), seed=5)
    record_events(folder.log, rows[:100])
    ingest(spark, folder)
    record_events(folder.log, rows[100:600])
    killed = Ingest(spark, folder)
    monkeypatch.setattr(killed.archive.events, "add_files", _killed)
    with pytest.raises(StorageFailed, match="killed"):
        killed.run_to_end(has_flush=False)
    assert killed.archive.quarantine.mark("record") == 600
    folder.checkpoint("ingest").rename(folder.path / "lost")
    record_events(folder.log, rows[600:])
    ingest(spark, folder, rows=250)
    check_records(folder, rows, STREAMS)
    for window_s in (1, 60, 3_600):
        check_rollups(folder, rows, STREAMS, window_s)


def _killed(*_: object) -> None:
    raise StorageFailed("killed before this commit")


def test_statistics_of_files_tell_what_is_in_them(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    rows = disturbed(steady(STREAMS, 8), seed=5)
    record_events(folder.log, rows)
    job = ingest(spark, folder)
    good = judged(rows, STREAMS).query("reason.isna()")
    files = job.archive.events.files()
    assert sum(files["num_records"].to_pylist()) == len(good)
    for name in ("record", "stream", "created_ns", "received_ns", "sequence"):
        assert min(files[f"min.{name}"].to_pylist()) == good[name].min()
        assert max(files[f"max.{name}"].to_pylist()) == good[name].max()
    assert np.isclose(max(files["max.value"].to_pylist()), good["value"].max(), rtol=0, atol=0)
