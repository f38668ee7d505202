"""The log read as a table: columns, options that leave things out, and clear errors."""

from __future__ import annotations

import pickle
import struct
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zlib import crc32

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from gridstat.model.errors import ConfigurationError, DamagedLog, StorageFailed, UnknownName
from gridstat.pipeline.event_columns import EVENT_SCHEMA
from gridstat.pipeline.log_options import read_options
from gridstat.pipeline.log_source import LogBatchReader, LogSource, LogStreamReader, read_streams
from gridstat.pipeline.spark_errors import own_error
from gridstat.record.record_kinds import EVENTS, KINDS, LEDGERS, STREAMS
from tests.spark.audit_case import ledger
from tests.spark.made_logs import (
    BEGAN_NS,
    NS_PER_MS,
    events,
    grow,
    open_log,
    record_streams,
    segments,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from gridstat.model.errors import GridStatError

FRAME_ROWS = 100
FRAMES = 30
ROWS = FRAME_ROWS * FRAMES
VERSION_OF_KIND = 12
CHECKSUM_OF_HEAD = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recorded")
    record_streams(made, ["float64"] * 4)
    with open_log(made) as log:
        grow(log, FRAMES, rows=FRAME_ROWS)
    assert len(segments(made)) > 1
    return made


def load(spark: SparkSession, folder: Path, **options: str) -> DataFrame:
    return spark.read.format("gridstat").options(**options).load(str(folder))


def batch_reader(folder: Path, **options: str) -> LogBatchReader:
    source = LogSource({"path": str(folder), "rowsPerPartition": "100", **options})
    return source.reader(source.schema())


def at(milliseconds: int) -> datetime:
    return datetime.fromtimestamp(BEGAN_NS // 1_000_000_000, UTC) + timedelta(
        milliseconds=milliseconds
    )


def rows_read(reader: LogBatchReader) -> int:
    return sum(b.num_rows for part in reader.partitions() for b in reader.read(part))


def error_of(call: Callable[[], object]) -> GridStatError:
    """Return the error for the user, extracted from Spark's exception."""
    with pytest.raises(Exception, match="gridstat") as told:
        call()
    found = own_error(told.value)
    assert found is not None, told.value
    return found


def test_a_log_is_read_in_three_lines(spark: SparkSession, folder: Path) -> None:
    recorded = spark.read.format("gridstat").load(str(folder))
    mine = recorded.filter(recorded.variable == variable(1))
    found = mine.selectExpr("count(*)", "min(value)", "max(record)", "min(created)").collect()[0]
    assert tuple(found)[:3] == (ROWS // 4, 1 / 8, ROWS - 3)
    assert found[3] == at(1).replace(tzinfo=None)  # Spark hands out times of its zone, UTC.


def test_every_record_is_there_once_and_in_order_of_its_number(
    spark: SparkSession, folder: Path
) -> None:
    rows = load(spark, folder, rowsPerPartition="700").orderBy("record").toArrow()
    assert rows.column("record").to_pylist() == list(range(ROWS))
    expected = pa.Table.from_batches([events(0, ROWS)])
    for name in EVENTS.schema.names:
        assert rows.column(name).to_pylist() == expected.column(name).to_pylist()
    assert rows.column("value").to_pylist() == [n / 8 for n in range(ROWS)]


def test_values_go_by_the_type_of_their_stream(spark: SparkSession, tmp_path: Path) -> None:
    record_streams(tmp_path, ["float64", "int64", "bool", "record of three"])
    batch = events(0, 5, streams=5).set_column(5, "word", pa.array([3, 3, 1, 3, 3]))
    with open_log(tmp_path) as log:
        log.append(batch.cast(EVENTS.schema))
    rows = load(spark, tmp_path).orderBy("record").collect()
    tiny = struct.unpack("<d", struct.pack("<q", 3))[0]
    assert [row["value"] for row in rows] == [tiny, 3.0, 1.0, None, None]
    assert [row["variable"] for row in rows] == [*map(variable, range(4)), None]
    assert [row["word"] for row in rows] == [3, 3, 1, 3, 3]


def test_a_stream_that_is_recorded_later_is_known_to_the_same_workers(
    spark: SparkSession, tmp_path: Path
) -> None:
    record_streams(tmp_path, ["float64"])
    with open_log(tmp_path) as log:
        log.append(events(0, 100, streams=2))
    assert load(spark, tmp_path).filter("variable is null").count() == 50
    record_streams(tmp_path, ["float64"], first=1)
    assert load(spark, tmp_path).filter("variable is null").count() == 0


def test_the_last_row_of_a_stream_counts(tmp_path: Path) -> None:
    record_streams(tmp_path, ["int64", "float64"])
    record_streams(tmp_path, ["float64"])
    assert read_streams(tmp_path).is_float.tolist() == [True, True, False]


def test_a_stream_number_beyond_all_bounds_is_damage_and_no_great_table(tmp_path: Path) -> None:
    record_streams(tmp_path, ["float64"], first=2_000_000_000)
    with pytest.raises(DamagedLog, match="numbered from 2000000000"):
        read_streams(tmp_path)


def test_the_table_of_streams_is_read_once_for_many_slices(tmp_path: Path) -> None:
    record_streams(tmp_path, ["float64"])
    assert read_streams(tmp_path) is read_streams(tmp_path)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_each_kind_has_its_own_columns(spark: SparkSession, folder: Path, kind: str) -> None:
    expected = from_arrow_schema(EVENT_SCHEMA if kind == "events" else KINDS[kind].schema)
    table = load(spark, folder, kind=kind)
    assert table.schema == expected
    assert len(table.take(1)) == (kind in {"events", "streams"})


def test_lists_and_nulls_of_a_kind_come_through(spark: SparkSession, tmp_path: Path) -> None:
    kind = KINDS["ledgers"]
    row = {field.name: 1 if pa.types.is_integer(field.type) else "a" for field in kind.schema}
    rows = [{**row, "path": None, "latency_counts": [1, 2, 3]}, {**row, "latency_counts": None}]
    with open_log(tmp_path, kind) as log:
        log.append(pa.RecordBatch.from_pylist(rows, schema=kind.schema))
    found = load(spark, tmp_path, kind="ledgers").orderBy("path").collect()
    assert [each.asDict() for each in found] == rows


def test_without_names_the_column_is_not_there(spark: SparkSession, folder: Path) -> None:
    assert "variable" not in load(spark, folder, names="false").columns


def test_only_the_columns_of_a_given_schema_leave_the_log(
    spark: SparkSession, folder: Path
) -> None:
    few = spark.read.format("gridstat").schema("value double, stream int").load(str(folder))
    assert few.columns == ["value", "stream"]
    assert few.selectExpr("sum(value)").collect()[0][0] == sum(range(ROWS)) / 8
    source = LogSource({"path": str(folder)})
    part = (reader := source.reader(few.schema)).partitions()[0]
    assert next(reader.read(part)).schema.names == ["value", "stream"]


def record_ledgers(folder: Path) -> None:
    """A reading every ten nanoseconds, a frame for each, of three variables in turn."""
    with open_log(folder, LEDGERS) as log:
        for number in range(30):
            row = ledger(7, 0, number, time_ns=10 * number, variable=variable(number % 3))
            log.append(pa.RecordBatch.from_pylist([row], schema=LEDGERS.schema))
            log.sync()


@pytest.mark.parametrize(
    ("options", "first", "end"),
    [
        ({"from": "2023-11-14T22:13:21Z"}, 1_000, ROWS),
        ({"to": "2023-11-14T22:13:21Z"}, 0, 1_000),
        (
            {"from": "2023-11-14T22:13:21.25Z", "to": "2023-11-14 23:13:21.333000000+01:00"},
            1_250,
            1_333,
        ),
        ({"from": "2023-11-14T22:13:20.000000001Z", "to": "2023-11-14T22:13:20.001000001Z"}, 1, 2),
        ({"from": f"{BEGAN_NS + 7 * NS_PER_MS}", "to": f"{BEGAN_NS + 8 * NS_PER_MS}"}, 7, 8),
        ({"from": f"{BEGAN_NS + 7 * NS_PER_MS + 1}", "to": f"{BEGAN_NS + 8 * NS_PER_MS}"}, 0, 0),
        ({"from": "2033-01-01T00:00Z"}, 0, 0),
        ({"to": "2013-01-01T00:00Z"}, 0, 0),
    ],
)
def test_rows_from_one_instant_up_to_another_are_read_and_no_others(
    folder: Path, options: dict[str, str], first: int, end: int
) -> None:
    reader = batch_reader(folder, **options)
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    records = [number for batch in read for number in batch.column("record").to_pylist()]
    assert records == list(range(first, end))


def test_slices_without_a_row_of_the_interval_are_not_read(folder: Path) -> None:
    assert len(batch_reader(folder).partitions()) == FRAMES
    interval = {"from": "2023-11-14T22:13:21Z", "to": "2023-11-14T22:13:21.5Z"}
    narrow = batch_reader(folder, **interval)
    assert [part.value.first_record for part in narrow.partitions()] == [
        *range(1_000, 1_500, FRAME_ROWS)
    ]


def test_an_interval_is_the_same_in_spark_and_in_sql(spark: SparkSession, folder: Path) -> None:
    interval = {"from": "2023-11-14T22:13:21Z", "to": "2023-11-14T22:13:22Z"}
    few = load(spark, folder, rowsPerPartition="100", **interval)
    assert few.rdd.getNumPartitions() == 10
    assert few.count() == 1_000
    assert few.filter("record < 1500").count() == 500
    assert few.count() == 1_000
    spark.sql(
        "create temporary view an_interval using gridstat options "
        f"('path' '{folder}', 'from' '{interval['from']}', 'to' '{interval['to']}')"
    )
    try:
        told = spark.sql("select min(record), max(record), count(*) from an_interval").collect()
    finally:
        spark.catalog.dropTempView("an_interval")
    assert tuple(told[0]) == (1_000, 1_999, 1_000)


@pytest.mark.parametrize(
    ("variables", "streams"),
    [
        (variable(2), {2}),
        (f"{variable(2)}, {variable(3)},nobody/knows", {2, 3}),
        ("c1/hill/*/frequency", {0, 1, 2, 3}),
        ("c1/*/pmu-1/frequency,c1/hill/pmu-3/**", {1, 3}),
        ("**", {0, 1, 2, 3}),
        ("c1/*/frequency", set()),
        ("C1/hill/pmu-1/frequency", set()),
    ],
)
def test_only_rows_of_the_variables_are_read(
    folder: Path, variables: str, streams: set[int]
) -> None:
    for names in ("true", "false"):
        reader = batch_reader(folder, variables=variables, names=names)
        read = [batch for part in reader.partitions() for batch in reader.read(part)]
        found = [one for batch in read for one in batch.column("record").to_pylist()]
        assert found == [number for number in range(ROWS) if number % 4 in streams]


def test_variables_and_an_interval_are_both_obeyed(spark: SparkSession, folder: Path) -> None:
    few = load(
        spark, folder, variables=variable(1), to="2023-11-14T22:13:21Z", rowsPerPartition="100"
    )
    assert few.count() == 250
    assert few.select("variable").distinct().collect() == [(variable(1),)]


def test_an_event_of_an_unknown_stream_has_no_variable_to_be_chosen_by(tmp_path: Path) -> None:
    record_streams(tmp_path, ["float64"])
    with open_log(tmp_path) as log:
        log.append(events(0, 100, streams=2))
    assert rows_read(batch_reader(tmp_path)) == 100
    assert rows_read(batch_reader(tmp_path, variables="**")) == 50


def test_other_kinds_are_chosen_by_their_own_time_and_variable(tmp_path: Path) -> None:
    record_ledgers(tmp_path)
    interval = {"kind": "ledgers", "rowsPerPartition": "1", "from": "40", "to": "100"}
    reader = batch_reader(tmp_path, **interval)
    assert len(reader.partitions()) == 6
    read = [batch for part in reader.partitions() for batch in reader.read(part)]
    assert [batch.column("time_ns").to_pylist() for batch in read] == [
        [at] for at in range(40, 100, 10)
    ]
    assert rows_read(batch_reader(tmp_path, **interval, variables="c1/*/pmu-1/**")) == 2


def test_a_dataframe_has_the_rows_that_were_recorded_when_it_was_first_used(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_log(tmp_path) as log:
        grow(log, 3)
        table = load(spark, tmp_path)
        assert table.count() == 300
        grow(log, 2)
        assert table.count() == 300
        assert table.filter("record >= 250").count() == 50
        assert load(spark, tmp_path).count() == 500


def test_what_is_filtered_away_or_was_never_recorded_is_an_empty_table(
    spark: SparkSession, folder: Path, tmp_path: Path
) -> None:
    assert load(spark, folder).filter("created > '2033-01-01'").collect() == []
    assert load(spark, tmp_path).collect() == []


def test_two_logs_are_read_in_one_query(spark: SparkSession, folder: Path, tmp_path: Path) -> None:
    record_streams(tmp_path, ["int64"] * 4)
    with open_log(tmp_path) as log:
        grow(log, 2)
    both = load(spark, folder).join(load(spark, tmp_path), on="record", how="inner")
    assert both.count() == 200


def test_what_is_recorded_after_planning_is_for_the_next_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_log(tmp_path) as log:
        grow(log, 3)
        table = load(spark, tmp_path)
        assert table.count() == 300
        grow(log, 2)
        assert load(spark, tmp_path).count() == 500


@pytest.mark.parametrize(
    ("options", "told", "hint"),
    [
        ({"kind": "evnts"}, "no record kind 'evnts'", "one of events, streams"),
        ({"rowPerBatch": "5"}, "no option 'rowperbatch'", "rowsPerBatch"),
        ({"rowsPerBatch": "many"}, "rowsPerBatch 'many'", "a whole number"),
        ({"rowsPerPartition": "-1"}, "rowsPerPartition '-1'", "a whole number"),
        ({"startingRecord": "first"}, "startingRecord 'first'", "oldest, newest"),
        ({"names": "perhaps"}, "names 'perhaps'", "true or false"),
        ({"form": "2026-01-01T00:00Z"}, "no option 'form'", "from, to, variables"),
        ({"from": "yesterday"}, "from 'yesterday' is no time", "2026-01-01T00:00:00Z"),
        ({"from": "2026-01-01T00:00:00"}, "with a zone", "2026-01-01T00:00:00Z"),
        ({"to": "2026-13-01T00:00:00Z"}, "to '2026-13-01T00:00:00Z'", "2026-01-01T00:00:00Z"),
        ({"to": ""}, "to ''", "2026-01-01T00:00:00Z"),
        ({"to": "-5"}, "to '-5'", "nanoseconds since 1970"),
        ({"to": "9" * 5_000}, "to '999", "nanoseconds since 1970"),
        ({"from": "1969-12-31T23:59Z"}, "before 1970", "in between"),
        ({"to": "9223372036854775808"}, "after 2262", "in between"),
        ({"from": "20", "to": "20"}, "no instant in it", "before `to`"),
        ({"variables": ""}, "variables: name ''", "c1/*/frequency,c2/**"),
        ({"variables": "a/x,,b"}, "variables: name ''", "with commas"),
        ({"variables": "a/x*"}, "pattern 'a/x*' is not understood", "with commas"),
        ({"variables": ",".join(f"a/{n}" for n in range(1_001))}, "1,001 variables", "1,000"),
        ({"variables": "a" * 600_000}, "600,000 characters", "1,000 variables"),
        ({"kind": "gaps", "variables": "a/x"}, "gaps are not of variables", "ledgers"),
    ],
)
def test_a_bad_option_is_named(
    spark: SparkSession, folder: Path, options: dict[str, str], told: str, hint: str
) -> None:
    error = error_of(lambda: load(spark, folder, **options).schema)
    assert isinstance(error, UnknownName | ConfigurationError)
    assert told in str(error)
    assert hint in error.hint


@pytest.mark.parametrize(
    ("option", "value"),
    [("rowsPerBatch", "5"), ("startingRecord", "newest"), ("shares", "1"), ("rowsPerShare", "9")],
)
def test_an_option_of_streams_is_refused_where_all_is_read_at_once(
    spark: SparkSession, folder: Path, option: str, value: str
) -> None:
    error = error_of(lambda: load(spark, folder, **{option: value}).count())
    assert isinstance(error, ConfigurationError)
    assert f"`read` has no option '{option}'" in str(error)
    assert "leave it out" in error.hint


def test_a_missing_folder_and_one_without_a_log_are_named(
    spark: SparkSession, tmp_path: Path
) -> None:
    missing = error_of(lambda: load(spark, tmp_path / "missing").schema)
    assert "missing is no folder" in str(missing)
    (tmp_path / "holiday.jpg").touch()
    assert "holds no log" in str(error_of(lambda: load(spark, tmp_path).schema))
    with pytest.raises(ConfigurationError, match="no folder"):
        read_options({})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ("weight double", "no column 'weight'"),
        ("value float", "'value' is double, not float"),
        ("value double not null", "'value' may be null"),
    ],
)
def test_a_schema_that_is_not_the_log_s_is_refused(
    spark: SparkSession, folder: Path, schema: str, told: str
) -> None:
    reader = spark.read.format("gridstat").schema(schema)
    assert told in str(error_of(lambda: reader.load(str(folder)).collect()))


def test_a_bit_that_has_turned_is_an_error_and_no_wrong_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_log(tmp_path) as log:
        grow(log, 5)
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    error = error_of(lambda: load(spark, tmp_path).agg({"value": "sum"}).collect())
    assert isinstance(error, DamagedLog)
    assert f"{path.name} has a damaged frame at byte" in str(error)
    assert "restore the file" in error.hint


def test_a_segment_that_was_cut_is_an_error(spark: SparkSession, tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        grow(log, 5)
    path = segments(tmp_path)[0]
    path.write_bytes(path.read_bytes()[:-1])
    error = error_of(lambda: load(spark, tmp_path).count())
    assert isinstance(error, DamagedLog)


def test_records_of_a_later_release_are_refused_with_a_hint(
    spark: SparkSession, tmp_path: Path
) -> None:
    with open_log(tmp_path) as log:
        grow(log, 1)
    path = segments(tmp_path)[0]
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, VERSION_OF_KIND, EVENTS.version + 1)
    struct.pack_into("<I", data, CHECKSUM_OF_HEAD, crc32(data[:CHECKSUM_OF_HEAD]))
    path.write_bytes(data)
    error = error_of(lambda: load(spark, tmp_path).count())
    assert isinstance(error, StorageFailed)
    assert "events of version 2" in str(error)
    assert "newer" in error.hint


def test_what_travels_to_the_tasks_is_small(folder: Path) -> None:
    reader = batch_reader(folder)
    parts = reader.partitions()
    assert len(pickle.dumps(parts[0])) < 250
    assert len(pickle.dumps(reader)) < 3_000
    source = LogSource({"path": str(folder)})
    stream = source.streamReader(source.schema())
    assert isinstance(stream, LogStreamReader)
    assert len(pickle.dumps(stream)) < 4_000
    assert len(pickle.dumps(read_options({"path": str(folder)}))) < 500


def test_the_streams_of_the_log_are_its_own_kind(folder: Path) -> None:
    reader = batch_reader(folder, kind=STREAMS.name)
    assert rows_read(reader) == 4
