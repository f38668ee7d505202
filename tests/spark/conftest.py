"""The one Spark session of all these tests, and a search for leaks that knows what Spark keeps."""

from __future__ import annotations

import gc
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from gridstat.model.errors import ConfigurationError
from gridstat.pipeline.class_archive import make_archive
from gridstat.pipeline.java import java_home
from gridstat.pipeline.spark_session import QUICK_JAVA, SparkSettings, spark_session
from tests.holdings import Holdings
from tests.spark.ending import end_with_java

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

SETTLE_S = 5.0
TEST_S_MAX = 300
"""The first test pays for the session, and the first ever for the archive of Java's classes."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if item.path.is_relative_to(here) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_S_MAX))


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    folder = tmp_path_factory.mktemp("spark")
    settings = SparkSettings(
        name="tests",
        driver_memory="1g",
        java_options=QUICK_JAVA,
        more={
            "spark.local.dir": str(folder / "local"),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    with suppress(ConfigurationError):  # Some Javas make none, and then all starts are slower.
        make_archive(java_home(os.environ, settings.cache), settings.cache)
    session = spark_session(settings)
    yield session
    end_with_java(session)


@pytest.fixture(scope="session")
def _tables_have_started(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Lets the library of tables open what it keeps for good, in both of its runtimes."""
    folder = str(tmp_path_factory.mktemp("table"))
    write_deltalake(folder, pa.table({"number": [1]}))
    DeltaTable(folder).to_pyarrow_dataset().to_table()


@pytest.fixture(autouse=True)
def _nothing_is_left_behind(spark: SparkSession, _tables_have_started: None) -> Iterator[None]:
    """Spark keeps sockets and threads to its Java for good; processes and files it must not."""
    before = Holdings.now()
    yield
    deadline = time.monotonic() + SETTLE_S
    while complaint := _without_bridges(Holdings.now()).complaint_since(before):
        if time.monotonic() > deadline:
            pytest.fail(f"the test left behind: {complaint}", pytrace=False)
        gc.collect()
        time.sleep(0.01)


def _without_bridges(held: Holdings) -> Holdings:
    """Less what comes and goes with the bridge between Python and Java."""
    descriptors = {one for one in held.descriptors if "=socket:" not in one}
    return Holdings(frozenset(descriptors), frozenset(), held.children)
