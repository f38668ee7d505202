"""The log read as it grows: each record once, over restarts, rotations and releases."""

from __future__ import annotations

import json
import shutil
import threading
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from gridstat.model.errors import ConfigurationError, DamagedLog, RecordsGone, StorageFailed
from gridstat.pipeline.log_source import LogSource, LogStreamReader
from gridstat.pipeline.spark_errors import own_error
from tests.cluster.eventually import eventually
from tests.spark.made_logs import grow, open_log, record_streams, segments, variable

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from gridstat.model.errors import GridStatError

pytestmark = pytest.mark.timeout(180)


class Kept:
    """The record numbers of each batch, as a sink that remembers."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        records = batch.select("record").toArrow().column("record").to_pylist()
        self.batches.append(sorted(records))

    @property
    def records(self) -> list[int]:
        return [record for batch in self.batches for record in batch]


class Query:
    """The same query again and again, over one checkpoint."""

    def __init__(self, spark: SparkSession, log: Path, checkpoint: Path, **options: str) -> None:
        self._spark, self._log, self._checkpoint = spark, log, checkpoint
        self._options = options
        self.kept = Kept()

    def start(self, *, is_endless: bool = False) -> StreamingQuery:
        stream = self._spark.readStream.format("gridstat").options(**self._options)
        writer = stream.load(str(self._log)).writeStream.foreachBatch(self.kept)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if is_endless:
            return writer.trigger(processingTime="0 seconds").start()
        return writer.trigger(availableNow=True).start()

    def run(self) -> None:
        """Reads what there is, and ends."""
        query = self.start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    def error(self) -> GridStatError:
        with pytest.raises(StreamingQueryException) as told:
            self.run()
        found = own_error(told.value)
        assert found is not None, told.value
        return found


@pytest.fixture
def log(tmp_path: Path) -> Path:
    folder = tmp_path / "log"
    record_streams(folder, ["float64"] * 4)
    return folder


def stream_reader(folder: Path, **options: str) -> LogStreamReader:
    source = LogSource({"path": str(folder), **options})
    return source.streamReader(source.schema())


def test_what_is_there_is_read_in_bounded_batches_and_then_the_query_ends(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    with open_log(log) as writer:
        grow(writer, 25)
    query = Query(spark, log, tmp_path / "checkpoint", rowsPerBatch="1000")
    query.run()
    assert [len(batch) for batch in query.kept.batches] == [1_000, 1_000, 500]
    assert query.kept.records == list(range(2_500))


def test_a_restarted_query_goes_on_over_rotation_and_release(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    query = Query(spark, log, tmp_path / "checkpoint")
    for _ in range(3):
        with open_log(log) as writer:
            grow(writer, 12, rows=300)
            writer.rotate()
            grow(writer, 1)
            read_before = len(query.kept.records)
            writer.release(read_before)
        query.run()
    assert query.kept.records == list(range(3 * (12 * 300 + 100)))
    assert min(int(path.stem) for path in segments(log)) > 0


def test_a_batch_that_was_planned_and_not_committed_is_read_again_the_same(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    with open_log(log) as writer:
        grow(writer, 10)
    query = Query(spark, log, tmp_path / "checkpoint", rowsPerBatch="400")
    query.run()
    first = query.kept.batches
    (tmp_path / "checkpoint" / "commits" / "2").unlink()
    with open_log(log) as writer:
        grow(writer, 3)
    query.kept = Kept()
    query.run()
    assert query.kept.batches == [first[2], list(range(1_000, 1_300))]


def test_records_released_before_they_were_read_are_told_and_never_skipped(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    query = Query(spark, log, tmp_path / "checkpoint")
    with open_log(log) as writer:
        grow(writer, 2)
    query.run()
    with open_log(log) as writer:
        grow(writer, 20, rows=300)
        writer.rotate()
        grow(writer, 1)
        assert writer.release(writer.recorded)
    error = query.error()
    assert isinstance(error, RecordsGone)
    assert "not at 200" in str(error)
    assert "archive" in error.hint
    assert query.kept.records == list(range(200))


def test_another_log_in_the_same_folder_is_not_read_on_as_if_it_were_the_first(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    query = Query(spark, log, tmp_path / "checkpoint")
    with open_log(log) as writer:
        grow(writer, 3)
    query.run()
    shutil.rmtree(log / "events")
    with open_log(log) as writer:
        grow(writer, 1)
    shorter = query.error()
    assert isinstance(shorter, StorageFailed)
    assert "is not the log that the query has read up to record 300" in str(shorter)
    assert "new checkpoint" in shorter.hint


def test_a_longer_log_in_its_place_is_found_out_by_its_beginning(log: Path) -> None:
    with open_log(log) as writer:
        grow(writer, 3)
    reader = stream_reader(log)
    place = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert place["record"] == 300
    assert stream_reader(log).latestOffset(place, ReadAllAvailable()) == place
    with pytest.raises(StorageFailed, match="is not the log"):
        stream_reader(log).latestOffset({**place, "began_ns": 1}, ReadAllAvailable())


def test_a_damaged_segment_stops_the_query_with_its_name(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    with open_log(log) as writer:
        grow(writer, 3)
    path = segments(log)[0]
    data = bytearray(path.read_bytes())
    data[-200] ^= 4
    path.write_bytes(data)
    query = Query(spark, log, tmp_path / "checkpoint")
    error = query.error()
    assert isinstance(error, DamagedLog)
    assert path.name in str(error)
    assert query.kept.records == []


def test_a_log_that_grows_while_it_is_read_is_read_whole(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    query = Query(spark, log, tmp_path / "checkpoint", rowsPerBatch="5000")
    done = threading.Event()

    def write() -> None:
        with open_log(log) as writer:
            for _ in range(200):
                grow(writer, 1, rows=200)
                done.wait(0.005)

    pen = threading.Thread(target=write)
    running = query.start(is_endless=True)
    try:
        pen.start()
        eventually(
            lambda: None if len(query.kept.records) >= 40_000 else str(running.lastProgress),
            within_s=120,
        )
        running.processAllAvailable()  # The progress of a batch is reported after its rows.
        progress = running.lastProgress
    finally:
        done.set()
        pen.join()
        running.stop()
    assert query.kept.records == list(range(40_000))
    assert len(query.kept.batches) > 1
    assert progress is not None
    assert json.loads(progress.sources[0].latestOffset)["record"] == 40_000


def test_a_stream_of_some_variables_has_only_their_rows(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    with open_log(log) as writer:
        grow(writer, 5)
    query = Query(spark, log, tmp_path / "checkpoint", variables=f"c2/**,{variable(1)}")
    query.run()
    with open_log(log) as writer:
        grow(writer, 5)
    query.run()
    assert query.kept.batches == [list(range(1, 500, 4)), list(range(501, 1_000, 4))]


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"from": "2026-01-01T00:00:00Z"}, "startingRecord"),
        ({"to": "2026-01-01T00:00:00Z"}, "startingRecord"),
        ({"shares": "2"}, "gridstat-slices"),
        ({"rowsPerShare": "2"}, "gridstat-slices"),
    ],
)
def test_an_option_that_a_stream_would_not_obey_is_refused(
    spark: SparkSession, log: Path, tmp_path: Path, options: dict[str, str], hint: str
) -> None:
    source = spark.readStream.format("gridstat").options(**options)

    def start() -> None:
        writer = source.load(str(log)).writeStream.format("noop")
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    with pytest.raises(Exception, match="gridstat") as told:
        start()
    error = own_error(told.value)
    assert isinstance(error, ConfigurationError)
    assert f"`readStream` has no option '{next(iter(options))}'" in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(("start", "first"), [("oldest", 0), ("newest", 500), ("250", 200)])
def test_a_new_stream_begins_where_it_is_told(log: Path, start: str, first: int) -> None:
    with open_log(log) as writer:
        grow(writer, 5)
    assert stream_reader(log, startingRecord=start).initialOffset()["record"] == first


def test_a_new_stream_cannot_begin_at_records_that_are_gone(log: Path) -> None:
    with open_log(log) as writer:
        grow(writer, 20, rows=300)
        writer.rotate()
        grow(writer, 1)
        writer.release(writer.recorded)
    reader = stream_reader(log)
    assert reader.initialOffset()["record"] == 6_000
    with pytest.raises(RecordsGone):
        stream_reader(log, startingRecord="5").initialOffset()


def test_a_bound_below_one_frame_still_goes_on(log: Path) -> None:
    with open_log(log) as writer:
        grow(writer, 3)
    reader = stream_reader(log, rowsPerBatch="1")
    assert reader.getDefaultReadLimit() == ReadMaxRows(1)
    place, seen = reader.initialOffset(), []
    while (after := reader.latestOffset(place, ReadMaxRows(1))) != place:
        seen.append(after["record"])
        place = after
    assert seen == [100, 200, 300]


def test_an_offset_that_stands_still_is_the_same_text(log: Path) -> None:
    """Spark compares offsets as text, and a new text would be a new batch of nothing."""
    reader = stream_reader(log)
    start = reader.initialOffset()
    assert json.dumps(reader.latestOffset(start, ReadAllAvailable())) == json.dumps(start)
    with open_log(log) as writer:
        grow(writer, 20, rows=300)
        place = reader.latestOffset(start, ReadAllAvailable())
        writer.rotate()
        grow(writer, 1)
        writer.release(writer.recorded)
    again = reader.latestOffset(place, ReadMaxRows(1))
    assert again["record"] == 6_100
    assert reader.latestOffset(again, ReadAllAvailable()) == again
