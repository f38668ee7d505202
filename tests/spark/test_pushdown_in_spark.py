"""Behaviour of Spark itself with `pushFilters` of a data source written in Python (ADR-0023).

No code of ours takes part. When one of these tests fails after an upgrade, Spark has changed: look
whether the decision still has its reason, and do not merely correct the numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.datasource import Filter
    from pyspark.sql.types import StructType

pytestmark = [pytest.mark.spark, pytest.mark.timeout(300)]

NUMBERS = 10
PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def source_of_numbers() -> type[DataSource]:
    """A source of the numbers 0 to 9, one a partition, as Spark's own manual would write it.

    Made in a function, so that it travels to the workers whole and not by the name of this module.
    """

    class NumberReader(DataSourceReader):
        def __init__(self) -> None:
            self._only: int | None = None

        def pushFilters(self, filters: list[Filter]) -> Iterator[Filter]:  # noqa: N802
            for each in filters:
                if isinstance(each, EqualTo):
                    self._only = each.value
                yield each  # Spark is asked to evaluate every filter again.

        def partitions(self) -> list[InputPartition]:
            kept = range(NUMBERS) if self._only is None else [self._only]
            return [InputPartition(number) for number in kept]

        def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class NumberSource(DataSource):
        @classmethod
        def name(cls) -> str:
            return "toy-numbers"

        def schema(self) -> str:
            return "number int"

        def reader(self, schema: StructType) -> NumberReader:
            return NumberReader()

    return NumberSource


@pytest.fixture
def numbers(spark: SparkSession) -> Iterator[DataFrame]:
    before = spark.conf.get(PUSHDOWN)
    assert before is not None
    spark.conf.set(PUSHDOWN, "true")
    spark.dataSource.register(source_of_numbers())
    yield spark.read.format("toy-numbers").load()
    spark.conf.set(PUSHDOWN, before)


def test_spark_keeps_the_partitions_of_one_scan_for_the_next_action(numbers: DataFrame) -> None:
    assert numbers.filter("number = 3").count() == 1
    assert numbers.count() == 1, "Spark has changed; ten would be right"


def test_spark_replaces_the_partitions_only_when_it_pushes_again(numbers: DataFrame) -> None:
    assert numbers.count() == NUMBERS
    assert numbers.filter("number = 3").count() == 1
    assert numbers.filter("number = 4").count() == 1
    assert numbers.count() == 1, "Spark has changed; ten would be right"


def test_spark_shares_the_partitions_between_the_scans_of_one_plan(numbers: DataFrame) -> None:
    both = numbers.filter("number = 3").union(numbers.filter("number = 4"))
    assert sorted(row.number for row in both.collect()) == [4], (
        "Spark has changed; 3 and 4 would be right"
    )


def test_spark_plans_every_load_by_itself(spark: SparkSession, numbers: DataFrame) -> None:
    """Check that options of a load, unlike filters of a scan, cannot affect another load."""
    assert numbers.filter("number = 3").count() == 1
    assert spark.read.format("toy-numbers").load().count() == NUMBERS
