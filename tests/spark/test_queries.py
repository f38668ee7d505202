"""Questions in SQL over tables and the log: views that are used twice, and parts of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.model.errors import UnknownName
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.queries import run_statement
from gridstat.pipeline.row_choice import RowChoice
from tests.spark.made_logs import BEGAN_NS, NS_PER_MS, grow, open_log, record_streams, variable

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Iterator[PipelineFolder]:
    made = PipelineFolder(tmp_path)
    record_streams(made.log, ["float64"] * 4)
    with open_log(made.log) as log:
        grow(log, 30)
    yield made
    for name in ("log_events", "log_streams"):
        spark.catalog.dropTempView(name)


def test_one_table_of_the_log_is_used_twice_in_a_statement(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    statement = (
        f"with one as (select * from log_events where variable = '{variable(1)}'), "
        f"old as (select * from log_events where created_ns < {BEGAN_NS + 100 * NS_PER_MS}) "
        "select (select count(*) from one), (select count(*) from old), count(*) from log_events"
    )
    assert tuple(run_statement(spark, folder, statement).collect()[0]) == (750, 100, 3_000)
    both = "select count(*) from log_events join log_streams using (stream, variable)"
    assert tuple(run_statement(spark, folder, both).collect()[0]) == (3_000,)


def test_only_the_wanted_part_of_the_log_is_in_its_tables(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    part = RowChoice(from_ns=BEGAN_NS + 1_000 * NS_PER_MS, to_ns=BEGAN_NS + 1_010 * NS_PER_MS)
    found = run_statement(spark, folder, "select min(record), max(record) from log_events", part)
    assert tuple(found.collect()[0]) == (1_000, 1_009)
    named = "select count(*) from log_events join log_streams using (stream, variable)"
    found = run_statement(spark, folder, named, part)
    assert tuple(found.collect()[0]) == (10,), "streams that began before are known all the same"


def test_a_table_that_is_not_there_is_named_with_those_that_are(
    spark: SparkSession, folder: PipelineFolder
) -> None:
    with pytest.raises(UnknownName, match="nothing_here") as told:
        run_statement(spark, folder, "select * from nothing_here")
    assert "log_events, log_streams" in told.value.hint
