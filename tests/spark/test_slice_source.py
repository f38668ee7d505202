"""The log by its places: all of them for every share, in bounded batches, on over restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.slice_source import NAME, SliceSource, slices_of
from tests.spark.made_logs import grow, open_log

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from gridstat.pipeline.slice_source import SliceReader

pytestmark = [pytest.mark.spark, pytest.mark.timeout(180)]
SHARES = 3
Told = list[tuple[int, int, int]]
"""Share, first record and end record of every slice in a batch."""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten frames of a hundred records."""
    folder = tmp_path / "log"
    with open_log(folder) as writer:
        grow(writer, 10)
    return folder


def slice_reader(folder: Path, **options: str) -> SliceReader:
    source = SliceSource({"path": str(folder), **options})
    return source.streamReader(source.schema())


def batches(spark: SparkSession, log: Path, checkpoint: Path) -> list[Told]:
    """Return the batches of a query up to the end of the log."""
    found: list[Told] = []

    def keep(batch: DataFrame, _: int) -> None:
        rows = batch.select("share", "first_record", "end_record").collect()
        found.append(sorted((row.share, row.first_record, row.end_record) for row in rows))

    source = spark.readStream.format(NAME).option("rowsPerBatch", 500).option("shares", 2)
    source = source.option("rowsPerShare", 100)
    writer = source.load(str(log)).writeStream.foreachBatch(keep)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    query = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    return found


def test_every_share_gets_all_slices_of_a_batch(log: Path) -> None:
    reader = slice_reader(log, shares=str(SHARES), rowsPerShare="1", rowsPerPartition="300")
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    told = [slices_of(reader.read(each)) for each in reader.partitions(start, end)]
    assert [(share, shares) for share, shares, _ in told] == [(n, SHARES) for n in range(SHARES)]
    for _, _, slices in told:
        assert [(piece.first_record, piece.end_record) for piece in slices] == [
            (0, 300),
            (300, 600),
            (600, 900),
            (900, 1_000),
        ]
        assert slices == told[0][2]


@pytest.fixture(scope="module")
def lives(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[list[Told]]:
    """Batches of a query, and those of the same one started again after the log has grown."""
    log, checkpoint = (tmp_path_factory.mktemp(name) for name in ("log", "checkpoint"))
    found = []
    for frames in (8, 2):
        with open_log(log) as writer:
            grow(writer, frames)
        found.append(batches(spark, log, checkpoint))
    return found


def test_a_batch_is_bounded_though_spark_hands_the_name_of_the_option_on_in_small_letters(
    lives: list[list[Told]],
) -> None:
    """Copied into a plain dictionary, `rowsPerBatch` was not found, and there was no bound."""
    assert lives[0] == [[(0, 0, 500), (1, 0, 500)], [(0, 500, 800), (1, 500, 800)]]


def test_a_restarted_query_goes_on_at_its_offset(lives: list[list[Told]]) -> None:
    assert lives[1] == [[(0, 800, 1_000), (1, 800, 1_000)]]


@pytest.mark.parametrize(
    ("option", "value"),
    [("from", "5"), ("to", "2026-01-01T00:00Z"), ("variables", "c1/**"), ("names", "false")],
)
def test_slices_are_not_chosen_by_time_or_variable(log: Path, option: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`gridstat-slices` has no option '{option}'"):
        slice_reader(log, **{option: value})


@pytest.mark.parametrize("shares", ["0", "1025", "x", "-1", "1.5", ""])
def test_a_number_of_shares_that_cannot_be_is_refused_by_name(log: Path, shares: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^shares .*\(\d{4}\)") as told:
        slice_reader(log, shares=shares)
    assert told.value.hint


@pytest.mark.parametrize("shares", ["1", "1024"])
def test_the_least_and_the_greatest_number_of_shares_are_taken(log: Path, shares: str) -> None:
    reader = slice_reader(log, shares=shares, rowsPerShare="0")
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    assert len(reader.partitions(start, end)) == min(1_000, int(shares))


@pytest.mark.parametrize(
    ("rows_per_share", "shares"), [("1000", 1), ("500", 2), ("334", 3), ("1", 3)]
)
def test_a_share_has_rows_enough_to_be_worth_it(
    log: Path, rows_per_share: str, shares: int
) -> None:
    reader = slice_reader(log, shares="3", rowsPerShare=rows_per_share)
    start, end = reader.initialOffset(), reader.reportLatestOffset()
    assert len(reader.partitions(start, end)) == shares


def test_a_task_reads_all_its_slices_before_it_says_what_they_are(log: Path) -> None:
    """Spark ends a Python that leaves something unread, and the next task waits for another."""
    reader = slice_reader(log, rowsPerPartition="100")
    (only,) = reader.partitions(reader.initialOffset(), reader.reportLatestOffset())
    unread = [piece for batch in reader.read(only) for piece in in_rows(batch)]
    assert len(unread) == 10
    given = iter(unread)
    assert len(slices_of(given)[2]) == 10
    assert next(given, None) is None


def test_a_task_without_slices_has_no_share() -> None:
    assert slices_of(iter(())) == (0, 1, [])


def in_rows(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return (batch.slice(place, 1) for place in range(batch.num_rows))
