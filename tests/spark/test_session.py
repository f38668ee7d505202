"""The session itself: it works, and a stage's functions run in it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_the_session_counts(spark: SparkSession) -> None:
    assert spark.range(1_000).selectExpr("sum(id)").collect()[0][0] == 499_500


def test_times_are_utc(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
