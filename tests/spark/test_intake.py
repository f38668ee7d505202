"""Intake: each record in one share, groups in the order of the log, and files anybody reads."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import settings as at_most
from hypothesis import strategies as st
from pyspark.sql import Row

from gridstat.model.plausibility import TimeBounds
from gridstat.pipeline.archive import Archive
from gridstat.pipeline.data_files import written_files
from gridstat.pipeline.file_rows import ALL_TIME, FileRows
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.slice_source import slice_rows
from gridstat.pipeline.stages import intake
from gridstat.pipeline.stages.clean import UNKNOWN_STREAM, Judgement
from gridstat.pipeline.stages.intake import END, FIRST, recorded_rows, take_share
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS
from tests.spark.ingest_logs import BEGAN_S, NS_PER_S, Made, record_events, record_streams

if TYPE_CHECKING:
    from pathlib import Path

    from gridstat.record.log_reader import Slice

pytestmark = pytest.mark.spark
KNOWN_STREAMS = 3
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


@pytest.fixture(scope="module", autouse=True)
def _polars_has_started(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let Polars open its permanent descriptors before they are counted."""
    path = tmp_path_factory.mktemp("polars") / "rows.parquet"
    pq.write_table(pa.table({"number": [1]}), path)
    pl.scan_parquet(path).collect()


def made(streams: list[int]) -> list[Made]:
    """An event of each of the streams, a millisecond apart."""
    times_ns = [BEGAN_S * NS_PER_S + number * 1_000_000 for number in range(len(streams))]
    return [
        Made(stream, at_ns, at_ns + 500_000, number, number / 8)
        for number, (stream, at_ns) in enumerate(zip(streams, times_ns, strict=True))
    ]


def slices_of_all(log: Path, rows_per_slice: int) -> list[Slice]:
    reader = LogReader(log, EVENTS)
    return reader.slices(*reader.ends(), rows_per_slice)


def task_input(log: Path, share: int = 0, shares: int = 1) -> list[pa.RecordBatch]:
    return [slice_rows(share, shares, slices_of_all(log, 100))]


def told_by(log: Path, aside: Path, by: Judgement | None = None) -> list[dict[str, Any]]:
    by = Judgement(TimeBounds(), FileRows()) if by is None else by
    told = take_share(task_input(log), log=log, by=by, aside=aside)
    return [row for batch in told for row in batch.to_pylist()]


def files_told_by(told: list[dict[str, Any]]) -> dict[str | None, str]:
    """Paths by the reason that their rows are bad for, none for good rows."""
    return {json.loads(row["partition"])["reason"]: row["path"] for row in told if row["path"]}


@at_most(max_examples=40)
@given(
    streams=st.lists(st.integers(-4, 4) | INT32, min_size=6, max_size=40),
    rows_per_frame=st.integers(1, 12),
    shares=st.integers(1, 5),
    from_record=st.integers(0, 8),
)
@example(streams=[-1, 0, 1, -2, 2], rows_per_frame=2, shares=2, from_record=1)
@example(streams=[], rows_per_frame=1, shares=2, from_record=0)
def test_every_record_from_the_first_wanted_on_is_in_exactly_one_share(
    tmp_path_factory: pytest.TempPathFactory,
    streams: list[int],
    rows_per_frame: int,
    shares: int,
    from_record: int,
) -> None:
    log = tmp_path_factory.mktemp("log")
    record_events(log, made(streams), rows_per_frame=rows_per_frame)
    pieces = slices_of_all(log, 20) if streams else []
    parts = [recorded_rows(log, pieces, share, shares, from_record) for share in range(shares)]
    found = [
        (record, stream)
        for part in parts
        for record, stream in zip(
            part.column("record").to_pylist(), part.column("stream").to_pylist(), strict=True
        )
    ]
    assert sorted(found) == list(enumerate(streams))[from_record:]
    by_share = [set(part.column("stream").to_pylist()) for part in parts]
    assert sum(map(len, by_share)) == len(set(streams[from_record:]))


def test_groups_lie_in_the_order_of_the_log_and_streams_together_in_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "GROUP_ROWS", 6)
    record_streams(tmp_path, KNOWN_STREAMS)
    record_events(tmp_path, made([2, 1, 0] * 5), rows_per_frame=4)
    rows = recorded_rows(tmp_path, slices_of_all(tmp_path, 8), 0, 1, 0)
    assert rows.column("record").to_pylist() == [
        *(2, 5, 1, 4, 0, 3),
        *(8, 11, 7, 10, 6, 9),
        *(14, 13, 12),
    ]
    assert rows.column("sequence").to_pylist() == rows.column("record").to_pylist()


def test_events_of_unknown_streams_have_no_name_and_go_to_quarantine_for_that(
    tmp_path: Path,
) -> None:
    record_streams(tmp_path, KNOWN_STREAMS)
    record_events(tmp_path, made([0, KNOWN_STREAMS, 1, -1, 99]))
    files = files_told_by(told_by(tmp_path, tmp_path / "aside"))
    assert set(files) == {None, UNKNOWN_STREAM}
    good, bad = (pq.read_table(files[reason]) for reason in (None, UNKNOWN_STREAM))
    assert good.column("record").to_pylist() == [0, 2]
    assert sorted(bad.column("stream").to_pylist()) == [-1, KNOWN_STREAMS, 99]
    assert bad.column("variable").null_count == bad.num_rows


def test_names_that_are_written_once_each_are_plain_texts_to_every_reader(tmp_path: Path) -> None:
    record_streams(tmp_path, KNOWN_STREAMS)
    record_events(tmp_path, made([0, 1, 2, 1]))
    path = files_told_by(told_by(tmp_path, tmp_path / "aside"))[None]
    by_arrow = pq.read_table(path).column("variable")
    by_polars = pl.read_parquet(path).get_column("variable")
    with duckdb.connect() as connection:
        by_duckdb = connection.sql(f"select variable from '{path}'")
        kinds, texts = (
            [str(kind) for kind in by_duckdb.types],
            [name for (name,) in by_duckdb.fetchall()],
        )
    assert (by_arrow.type, by_polars.dtype, kinds) == (pa.string(), pl.String(), ["VARCHAR"])
    assert by_arrow.to_pylist() == by_polars.to_list() == texts
    assert texts == [f"c1/hill/pmu-{stream}/frequency" for stream in (0, 1, 1, 2)]


def test_every_task_tells_the_end_of_what_it_was_given_even_if_it_writes_nothing(
    tmp_path: Path,
) -> None:
    record_streams(tmp_path, KNOWN_STREAMS)
    record_events(tmp_path, made([0, 1, 2]))
    done = Judgement(TimeBounds(), FileRows(), from_record=3)
    (told,) = told_by(tmp_path, tmp_path / "aside", done)
    assert told == {"path": None, "partition": None, FIRST: 0, END: 3}


def test_an_archive_of_which_a_part_was_compacted_is_read_as_one(tmp_path: Path) -> None:
    folder = PipelineFolder(tmp_path)
    record_streams(folder.log, KNOWN_STREAMS)
    archive = Archive(folder, TimeBounds())
    rows = made([0, 1, 2])
    for number in range(3):
        later = [replace(row, sequence=row.sequence + 10 * number) for row in rows]
        record_events(folder.log, later)
        by = Judgement(TimeBounds(), FileRows(), from_record=archive.taken)
        told = [Row(**row) for row in told_by(folder.log, folder.aside, by)]
        end = 3 * (number + 1)
        archive.events.add_files(written_files(told), f"{end:020d}", {"record": end})
        if number == 1:
            archive.events.compact(1 << 20)
    found = archive.rows(ALL_TIME)
    assert (len(found.paths), found.rows_max) == (2, 9)
    whole = pa.concat_tables(found.read(["created_ns", "record"]))
    assert sorted(whole.column("record").to_pylist()) == list(range(9))
