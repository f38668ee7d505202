"""One DataFrame of our data sources used twice, in two actions or in one plan, gives exact rows.

Every log here has many small frames and one partition for each, so that partitions that were left
out for one scan would be missed by another one (ADR-0023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from gridstat.pipeline.slice_source import NAME as SLICES
from gridstat.record.record_kinds import LEDGERS
from tests.spark.audit_case import ledger
from tests.spark.made_logs import BEGAN_NS, NS_PER_MS, grow, open_log, record_streams, variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

FRAMES = 12
FRAME_ROWS = 100
ROWS = FRAMES * FRAME_ROWS
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


@dataclass(frozen=True)
class Case:
    """Two conditions that share no row, and how many rows each is true of."""

    kind: str
    one: str
    one_rows: int
    other: str
    other_rows: int
    rows: int


def events_before(number: int) -> str:
    return f"created_ns < {BEGAN_NS + number * NS_PER_MS}"


CASES = [
    Case("events", events_before(250), 250, f"not ({events_before(800)})", 400, ROWS),
    Case(
        "events",
        "created < timestamp'2023-11-14 22:13:20.4'",
        400,
        "created >= timestamp'2023-11-14 22:13:20.9'",
        300,
        ROWS,
    ),
    Case(
        "events",
        f"variable = '{variable(1)}'",
        ROWS // 4,
        f"variable in ('{variable(2)}', '{variable(3)}')",
        ROWS // 2,
        ROWS,
    ),
    Case("ledgers", "time_ns < 40", 4, "time_ns >= 70", 5, FRAMES),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recorded")
    record_streams(made, ["float64"] * 4)
    with open_log(made) as log:
        grow(log, FRAMES, rows=FRAME_ROWS)
    with open_log(made, LEDGERS) as log:
        for number in range(FRAMES):
            row = ledger(7, 0, number, time_ns=10 * number)
            log.append(pa.RecordBatch.from_pylist([row], schema=LEDGERS.schema))
            log.sync()
    return made


@pytest.fixture(params=["", "true", "false"], ids=["usual", "pushdown", "no-pushdown"])
def _pushdown(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Set Spark's pushdown; the rows must be the same with every setting."""
    before = spark.conf.get(PUSHDOWN)
    assert before is not None
    if request.param:
        spark.conf.set(PUSHDOWN, request.param)
    yield
    spark.conf.set(PUSHDOWN, before)


@pytest.fixture(params=CASES, ids=["nanoseconds", "time", "variable", "ledgers"])
def case(request: pytest.FixtureRequest) -> Case:
    assert isinstance(request.param, Case)
    return request.param


@pytest.fixture
def rows(spark: SparkSession, folder: Path, case: Case) -> DataFrame:
    source = spark.read.format("gridstat").option("kind", case.kind)
    return source.option("rowsPerPartition", 1).load(str(folder))


def test_all_rows_are_counted_after_some(case: Case, rows: DataFrame) -> None:
    assert rows.filter(case.one).count() == case.one_rows
    assert rows.count() == case.rows


def test_some_rows_are_counted_after_all(case: Case, rows: DataFrame) -> None:
    assert rows.count() == case.rows
    assert rows.filter(case.one).count() == case.one_rows
    assert rows.filter(case.other).count() == case.other_rows


def test_two_filters_of_one_dataframe_are_united(case: Case, rows: DataFrame) -> None:
    both = rows.filter(case.one).unionByName(rows.filter(case.other))
    assert both.count() == case.one_rows + case.other_rows
    assert rows.filter(case.one).union(rows).count() == case.one_rows + case.rows


def test_a_dataframe_is_joined_with_a_filter_of_itself(case: Case, rows: DataFrame) -> None:
    key = "record" if case.kind == "events" else "time_ns"
    few = rows.filter(case.one).select(key)
    assert rows.join(few, on=key, how="left_anti").count() == case.rows - case.one_rows
    assert few.join(rows.filter(case.other), on=key, how="full").count() == (
        case.one_rows + case.other_rows
    )


def test_a_view_is_used_twice_in_one_statement(
    spark: SparkSession, case: Case, rows: DataFrame
) -> None:
    rows.createOrReplaceTempView("used_twice")
    try:
        counts = spark.sql(
            f"select (select count(*) from used_twice where {case.one}) as one, "
            f"(select count(*) from used_twice where {case.other}) as other, "
            "(select count(*) from used_twice) as rows"
        ).collect()[0]
        beside = spark.sql(
            f"select count(*) from used_twice where {case.one} "
            "and (select count(*) from used_twice) > 0"
        ).collect()[0]
    finally:
        spark.catalog.dropTempView("used_twice")
    assert tuple(counts) == (case.one_rows, case.other_rows, case.rows)
    assert tuple(beside) == (case.one_rows,)


@pytest.mark.usefixtures("_pushdown")
def test_a_session_s_pushdown_changes_no_row(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format("gridstat").option("rowsPerPartition", 1).load(str(folder))
    assert rows.filter(events_before(250)).count() == 250
    assert rows.count() == ROWS


def run(stream: DataFrame, checkpoint: Path, take: Callable[[DataFrame, int], None]) -> None:
    """Reads a stream up to the present end of its log."""
    writer = stream.writeStream.foreachBatch(take).trigger(availableNow=True)
    query = writer.option("checkpointLocation", str(checkpoint)).start()
    try:
        query.awaitTermination()
    finally:
        query.stop()


@pytest.fixture
def growing(tmp_path: Path) -> Path:
    log = tmp_path / "log"
    record_streams(log, ["float64"] * 4)
    with open_log(log) as writer:
        grow(writer, 10)
    return log


def test_a_stream_is_used_twice_in_one_query(
    spark: SparkSession, growing: Path, tmp_path: Path
) -> None:
    stream = spark.readStream.format("gridstat").option("rowsPerPartition", 1).load(str(growing))
    found: list[int] = []
    both = stream.filter(events_before(250)).unionByName(stream.filter("record >= 500"))
    run(both, tmp_path / "checkpoint", lambda batch, _: found.append(batch.count()))
    assert sum(found) == 250 + 500


@pytest.mark.parametrize("name", ["gridstat", SLICES])
def test_two_queries_of_one_stream_each_read_all_of_it(
    spark: SparkSession, growing: Path, tmp_path: Path, name: str
) -> None:
    """The second is begun after the log has grown, and reads up to where it ends by then."""
    stream = spark.readStream.format(name).option("rowsPerPartition", 1).load(str(growing))
    counted = (
        F.count("*") if name == "gridstat" else F.sum(F.col("end_record") - F.col("first_record"))
    )
    few = F.col("record" if name == "gridstat" else "first_record") < 200
    found: dict[str, list[int]] = {"few": [], "all": []}

    def take_few(batch: DataFrame, _: int) -> None:
        found["few"].append(batch.agg(counted).collect()[0][0])

    def take_all(batch: DataFrame, _: int) -> None:
        found["few"].append(batch.filter(few).agg(counted).collect()[0][0])
        found["all"].append(batch.agg(counted).collect()[0][0])

    run(stream.filter(few), tmp_path / "few", take_few)
    with open_log(growing) as writer:
        grow(writer, 5)
    run(stream, tmp_path / "all", take_all)
    assert found == {"few": [200, 200], "all": [1_500]}
