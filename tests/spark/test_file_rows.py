"""Rows of the archive as tasks read them: those that were asked for, of whatever files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import settings as at_most
from hypothesis import strategies as st
from pyspark.sql import functions as F

from gridstat.pipeline.file_rows import (
    ROWS_PER_TASK_MAX,
    ROWS_PER_TASK_MIN,
    SHARES_MAX,
    FileRows,
    in_shares,
    in_turn,
    is_in_share,
    share_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray
    from pyspark.sql import SparkSession

    from gridstat.pipeline.time_spans import Spans

pytestmark = pytest.mark.spark
NAMES = ("record", "stream", "created_ns")
TYPES = (pa.int64(), pa.int32(), pa.int64())
Row = tuple[int, int, int]

ROWS = st.lists(
    st.tuples(st.integers(0, 99), st.integers(-3, 3), st.integers(-20, 20)), min_size=3, max_size=12
)
BOUND = st.none() | st.integers(-22, 22)
NARROW = st.builds(
    lambda first_ns, length_ns: (first_ns, first_ns + length_ns),
    st.integers(-22, 22),
    st.integers(0, 4),
)
SPANS = st.lists(NARROW | st.tuples(BOUND, BOUND), min_size=1, max_size=3).map(tuple)


def write(path: Path, rows: list[Row], *, nullable: bool, group_rows: int = 3) -> str:
    columns = list(zip(*rows, strict=True)) or [()] * len(NAMES)
    schema = pa.schema(
        [pa.field(*field, nullable=nullable) for field in zip(NAMES, TYPES, strict=True)]
    )
    arrays = [pa.array(column, kind) for column, kind in zip(columns, TYPES, strict=True)]
    pq.write_table(pa.table(arrays, schema=schema), path, row_group_size=group_rows)
    return str(path)


def is_within(created_ns: int, spans_ns: Spans) -> bool:
    return any(
        (low is None or low <= created_ns) and (high is None or created_ns <= high)
        for low, high in spans_ns
    )


@at_most(max_examples=60)
@given(
    files=st.lists(st.tuples(ROWS, st.booleans()), min_size=1, max_size=3),
    spans_ns=SPANS,
    shares=st.none() | st.integers(1, 3),
)
@example(files=[([(0, 0, 1), (1, 0, 2), (2, 0, 3)], True)], spans_ns=((3, 3),), shares=None)
@example(files=[([(0, 0, 1), (1, 0, 2), (2, 0, 3)], True)], spans_ns=((1, 1),), shares=None)
@example(files=[([], False)], spans_ns=(), shares=2)
def test_exactly_the_rows_within_the_spans_and_of_the_chosen_streams_are_read(
    tmp_path_factory: pytest.TempPathFactory,
    files: list[tuple[list[Row], bool]],
    spans_ns: Spans,
    shares: int | None,
) -> None:
    folder = tmp_path_factory.mktemp("files")
    paths = tuple(
        write(folder / f"{number}.parquet", rows, nullable=nullable)
        for number, (rows, nullable) in enumerate(files)
    )

    def is_chosen(streams: NDArray[np.int32]) -> NDArray[np.bool_]:
        chosen: NDArray[np.bool_] = streams % (shares or 1) == 0
        return chosen

    events = FileRows(paths, spans_ns)
    found = [
        row
        for part in events.read(NAMES, None if shares is None else is_chosen)
        for row in zip(*part.to_pydict().values(), strict=True)
    ]
    assert found == [
        (record, stream, created_ns)
        for rows, _ in files
        for record, stream, created_ns in rows
        if is_within(created_ns, spans_ns) and stream % (shares or 1) == 0
    ]


def test_files_that_were_compacted_and_files_that_were_not_are_read_as_one(tmp_path: Path) -> None:
    """Read both kinds: compaction writes nullable columns, which do not join with others."""
    fresh = write(tmp_path / "fresh.parquet", [(1, 0, 5), (2, 1, 6)], nullable=False)
    compacted = write(tmp_path / "compacted.parquet", [(0, 0, 4)], nullable=True)
    parts = list(FileRows((fresh, compacted)).read(NAMES))
    assert pa.concat_tables(parts).column("record").to_pylist() == [1, 2, 0]


def test_columns_come_in_the_order_in_which_they_were_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "rows.parquet", [(1, 0, 5)], nullable=False)
    (rows,) = FileRows((path,)).read(("created_ns", "record"))
    assert rows.column_names == ["created_ns", "record"]


def test_a_task_reads_its_input_to_the_end_or_the_next_one_waits_for_a_new_python() -> None:
    is_read_to_the_end = False

    def given_rows() -> Iterator[pa.RecordBatch]:
        nonlocal is_read_to_the_end
        yield pa.record_batch({"share": [1], "shares": [4]})
        yield pa.record_batch({"share": pa.array([], pa.int64()), "shares": pa.array([])})
        is_read_to_the_end = True

    assert share_of(given_rows()) == (1, 4)
    assert is_read_to_the_end


def test_a_task_without_a_row_has_no_share() -> None:
    assert share_of(iter(())) is None


@pytest.mark.parametrize("shares", [2, 3, 14])
@pytest.mark.parametrize("step", [1, 2, 7, 14])
def test_shares_are_even_though_every_so_many_streams_are_of_a_kind(shares: int, step: int) -> None:
    """Check shares by hash; by number alone, one task got all fast variables of such devices."""
    numbers = np.arange(0, 1_000 * step, step, dtype=np.int32)
    sizes = [int(is_in_share(numbers, share, shares).sum()) for share in range(shares)]
    assert sum(sizes) == 1_000
    assert max(sizes) < 1.5 * 1_000 / shares


@pytest.mark.parametrize(
    ("rows_max", "tasks"),
    [
        (0, 1),
        (1, 1),
        (ROWS_PER_TASK_MIN, 1),
        (ROWS_PER_TASK_MIN + 1, 2),
        (ROWS_PER_TASK_MAX, 2),
        (5 * ROWS_PER_TASK_MAX, 5),
        (5 * ROWS_PER_TASK_MAX + 1, 6),
        (2 * SHARES_MAX * ROWS_PER_TASK_MAX, SHARES_MAX),
    ],
)
def test_there_are_as_many_tasks_as_processors_and_more_only_for_many_rows(
    spark: SparkSession, rows_max: int, tasks: int
) -> None:
    assert spark.sparkContext.defaultParallelism == 2
    assert in_shares(spark, FileRows(rows_max=rows_max)).rdd.getNumPartitions() == tasks


def test_every_task_has_one_share(spark: SparkSession) -> None:
    shares = in_shares(spark, FileRows(rows_max=3 * ROWS_PER_TASK_MAX))
    rows = shares.select("share", "shares", F.spark_partition_id().alias("task")).collect()
    assert sorted(rows) == [(0, 3, 0), (1, 3, 1), (2, 3, 2)]


def test_shares_in_turn_are_all_of_them_a_task_each(spark: SparkSession) -> None:
    turns = list(in_turn(spark, FileRows(rows_max=2 * ROWS_PER_TASK_MAX + 1)))
    assert [each.collect() for each in turns] == [[(0, 3)], [(1, 3)], [(2, 3)]]
    assert [each.rdd.getNumPartitions() for each in turns] == [1, 1, 1]
