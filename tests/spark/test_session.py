"""The session itself: it works, and a stage's functions run in it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pyspark

from tests.tidy.source import ROOT

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ENDING = """
import gc
from gridstat.pipeline.spark_session import QUICK_JAVA, SparkSettings, spark_session
from tests.holdings import Holdings, nothing_left_behind
from tests.spark.ending import end_with_java

session = spark_session(SparkSettings(java_options=QUICK_JAVA))
frames = [session.range(number) for number in range(100)]
end_with_java(session)
held = Holdings.now()
assert not held.children, held
with nothing_left_behind("end", within_s=20.0):
    frames.clear()
    del session
    gc.collect()
"""


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


def test_a_session_that_ended_leaves_no_java_and_no_bridge_that_opens_sockets() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDING], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
