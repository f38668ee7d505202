"""The same job on a cluster of real processes, one of which is killed at its work."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from gridstat.pipeline.jobs.ingest import Ingest
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.progress import read_progress
from gridstat.pipeline.schemas import EVENTS, QUARANTINE, ROLLUP_1M, ROLLUP_1S
from lab.spark_cluster import SparkCluster
from tests.cluster.eventually import eventually
from tests.spark.listeners import command_lines_of, listeners_of
from tests.spark.made_logs import grow, open_log, record_streams
from tests.spark.table_rows import complaint, rows_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

BATCHES = 4
ROWS_PER_BATCH = 4_000
WITHIN_S = 400.0
pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log with rows for quarantine, too: those of an unknown stream."""
    folder = tmp_path / "log"
    record_streams(folder, ["float64", "int64", "float64"])
    with open_log(folder) as writer:
        grow(writer, BATCHES, rows=ROWS_PER_BATCH)
    return folder


def driver(cluster: SparkCluster, folder: Path, log: Path) -> subprocess.Popen[bytes]:
    settings = cluster.settings()
    told = {
        "master": settings.master,
        "driver_memory": settings.driver_memory,
        "java_options": settings.java_options,
        "has_archive": settings.has_archive,
        "host": settings.host,
        "properties": str(settings.properties),
        "more": dict(settings.more),
    }
    words = [str(folder), str(log), str(ROWS_PER_BATCH), json.dumps(told)]
    with (folder.parent / "driver.log").open("wb") as output:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.spark.cluster_driver", *words],
            stdout=output,
            stderr=output,
        )


def attack(cluster: SparkCluster, job: subprocess.Popen[bytes]) -> None:
    """Look for the secret on command lines, and for a process that listens to other machines."""
    drivers = command_lines_of(job.pid)
    executors = [line for line in cluster.command_lines() if b"CoarseGrainedExecutor" in line]
    assert executors
    assert all(b"-Dspark.network.crypto.enabled=true" in line for line in executors)
    assert not [
        line for line in drivers + cluster.command_lines() if cluster.secret.encode() in line
    ]
    assert all(each.is_loopback for each in listeners_of(job.pid).values())


def test_a_worker_killed_at_its_work_changes_no_table(
    spark: SparkSession, log: Path, tmp_path: Path
) -> None:
    here, there = PipelineFolder(tmp_path / "here", log), PipelineFolder(tmp_path / "there", log)
    Ingest(spark, here).run_to_end()
    with SparkCluster(tmp_path / "cluster") as cluster, driver(cluster, there.path, log) as job:

        def has_begun() -> str | None:
            assert job.poll() is None, (tmp_path / "driver.log").read_text()
            if not cluster.tasks_of(0):
                return "the worker has not had a task yet"
            return None if read_progress(there.path).get("taken", 0) else "no batch yet"

        try:
            eventually(has_begun, within_s=WITHIN_S)
            attack(cluster, job)
            cluster.kill_worker(0)
            assert read_progress(there.path)["taken"] < BATCHES * ROWS_PER_BATCH
            assert job.wait(WITHIN_S) == 0, (tmp_path / "driver.log").read_text()
            eventually(lambda: None if cluster.alive_workers() == 1 else "still counted")
        finally:
            job.kill()
    for table in (EVENTS, QUARANTINE, ROLLUP_1S, ROLLUP_1M):
        expected = rows_of(here.tables, table)
        assert expected.num_rows > 0
        assert complaint(rows_of(there.tables, table), expected) is None, table.name
    archived = rows_of(there.tables, EVENTS).num_rows
    quarantined = rows_of(there.tables, QUARANTINE).num_rows
    assert archived + quarantined == BATCHES * ROWS_PER_BATCH
