"""Compacting beside writers: it tries again, does what it can, and says what it could not."""

from __future__ import annotations

import os
import time
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from gridstat.model.errors import Misuse, StorageFailed
from gridstat.pipeline.delta_tables import StoredTable
from gridstat.pipeline.jobs.compact import CompactSettings, compact
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.schemas import EVENTS, ROLLUP_1S, ROLLUP_LIVE, TABLES, TableSchema
from gridstat.record.archive_mark import archived_before
from gridstat.record.record_kinds import EVENTS as RECORDED_EVENTS
from tests.spark.ingest_logs import record_events, steady

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.spark
SMALL = TableSchema("small", "name string, at timestamp, number bigint, day date", ("name", "at"))
BYTES_TARGET = 1 << 20


def rows(*numbers: int) -> pa.Table:
    at = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    return pa.Table.from_pylist(
        [
            {"name": f"n{number % 10}", "at": at, "number": number, "day": date(2023, 11, 14)}
            for number in numbers
        ]
    )


def numbers_of(tables: Path) -> list[int]:
    stored = StoredTable(tables, SMALL)
    paths = stored.paths("number", [(0, None)])
    found = [pq.read_table(stored.folder / path) for path in paths]
    return sorted(pa.concat_tables(found)["number"].to_pylist())


@pytest.fixture
def written(tmp_path: Path) -> StoredTable:
    table = StoredTable(tmp_path, SMALL)
    for number in range(4):
        table.append(rows(number))
    return table


def test_compacting_tries_again_when_a_merge_came_first(
    tmp_path: Path, written: StoredTable
) -> None:
    beside = StoredTable(tmp_path, SMALL)
    written.upsert(rows(12), "at", {"record": 7})
    beside.compact(BYTES_TARGET)
    assert beside.files().num_rows == 1
    assert beside.mark("record") == 7
    assert numbers_of(tmp_path) == [0, 1, 3, 12]


def test_a_table_that_never_rests_is_told_of_as_such(
    tmp_path: Path, written: StoredTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = StoredTable(tmp_path, SMALL)
    refresh = StoredTable.refresh
    fresh = iter(range(10, 1_000, 10))

    def refresh_and_lose(table: StoredTable) -> None:
        refresh(table)
        if table is beside:
            written.upsert(rows(next(fresh)), "at")

    written.upsert(rows(12), "at")
    monkeypatch.setattr(StoredTable, "refresh", refresh_and_lose)
    with pytest.raises(StorageFailed, match="changed by another") as told:
        beside.compact(BYTES_TARGET)
    assert "disk" not in f"{told.value} {told.value.hint}"


def age_log(table: StoredTable, hours: float) -> None:
    """Make all commits look old: Delta uses the times of its files."""
    then_s = time.time() - hours * 3_600
    for entry in (table.folder / "_delta_log").iterdir():
        os.utime(entry, (then_s, then_s))


def entries(table: StoredTable) -> list[str]:
    return sorted(entry.name for entry in (table.folder / "_delta_log").glob("*.json"))


@pytest.mark.parametrize(("schema", "hours"), [(SMALL, 24), (ROLLUP_LIVE, 1)])
def test_folding_removes_entries_of_the_log_that_are_older_than_what_is_kept(
    tmp_path: Path, schema: TableSchema, hours: int
) -> None:
    table = StoredTable(tmp_path, schema)
    for number in range(1, 6):
        table.overwrite(table.empty(), {"record": number})
    age_log(table, hours - 0.5)
    table.fold()
    assert len(entries(table)) == 6
    age_log(table, hours + 0.5)
    table.fold()
    assert entries(table) == ["00000000000000000005.json"]
    assert StoredTable(tmp_path, schema).mark("record") == 5


def test_who_rested_while_the_log_was_folded_goes_on(tmp_path: Path, written: StoredTable) -> None:
    beside = StoredTable(tmp_path, SMALL)
    beside.compact(BYTES_TARGET)
    age_log(written, SMALL.hours_kept + 1)
    beside.fold()
    assert entries(written) == ["00000000000000000005.json"]
    written.append(rows(5))
    assert numbers_of(tmp_path) == [0, 1, 2, 3, 5]


def test_files_are_kept_for_an_hour_at_least_for_an_ingest_may_have_yet_to_commit_them() -> None:
    with pytest.raises(Misuse, match="0 hours"):
        CompactSettings(hours_kept=0)


def test_one_table_that_fails_keeps_no_other_from_being_compacted_nor_the_log_from_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = PipelineFolder(tmp_path)
    record_events(folder.log, steady(1, 2)[:9])
    for schema in TABLES.values():
        StoredTable(folder.tables, schema).add_files([], "", {"record": 9})
    tried: list[str] = []

    def compacted(table: StoredTable, _: int) -> Mapping[str, Any]:
        tried.append(table.schema.name)
        if table.schema is ROLLUP_1S:
            raise StorageFailed("no room")
        return {}

    monkeypatch.setattr(StoredTable, "compact", compacted)
    with pytest.raises(StorageFailed, match="no room"):
        compact(folder)
    assert {EVENTS.name, *(name for name in TABLES if name != "rollup_live")} == set(tried)
    assert archived_before(folder.log, RECORDED_EVENTS) == 9
