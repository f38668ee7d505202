"""The session itself: it works, and a stage's functions run in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_counts(spark: SparkSession) -> None:
    assert spark.range(1_000).selectExpr("sum(id)").collect()[0][0] == 499_500


def test_workers_take_the_installed_spark_and_not_the_zip_that_is_compiled_each_time(
    spark: SparkSession,
) -> None:
    def places(_: object) -> list[str]:
        return [sys.executable, pyspark.__file__]

    python, package = spark.sparkContext.parallelize([0], 1).flatMap(places).collect()
    assert python == sys.executable
    assert package == pyspark.__file__


def test_times_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
