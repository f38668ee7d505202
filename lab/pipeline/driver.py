"""Driver process to be killed: ingests a log until a file is removed, then flushes.

    python -m lab.pipeline.driver FOLDER ROWS_PER_BATCH LOG [--rules FILE] [--once] …

It ingests new records while the file `more` is in the folder, and all remaining records once the
file is gone. With --once it ingests what is recorded by now, and leaves the last windows open. With
rules it finds alarms, and appends them to a file.
"""

from __future__ import annotations

import argparse
import resource
import sys
import threading
from pathlib import Path

from gridstat.pipeline.alarm_rules import load_rules
from gridstat.pipeline.jobs.alarm_follower import AlarmFollower
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.spark_session import QUICK_JAVA, SparkSettings, spark_session
from lab.pipeline.handed_on import HandedOn
from lab.pipeline.orphan import end_with_parent

MORE = "more"


def main(argv: list[str]) -> None:
    asked = _parser().parse_args(argv)
    end_with_parent()
    if asked.file_bytes_max:  # A program cannot tell this limit from a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (asked.file_bytes_max, resource.RLIM_INFINITY))
    path: Path = asked.folder
    settings = SparkSettings(
        name="killed",
        driver_memory="512m",
        java_options=QUICK_JAVA,
        more={
            "spark.local.dir": str(path / "spark"),
            "spark.sql.warehouse.dir": str(path / "spark"),
        },
    )
    spark = spark_session(settings)
    folder = PipelineFolder(path, asked.log)
    followers = [] if asked.rules is None else [_alarms(folder, asked.rules)]
    ingest = IngestSettings(
        trigger_s=0.05,
        rows_per_batch=asked.rows_per_batch,
        rows_per_share=100,
        compact_s=2.0,
        keeps_log=True,
    )
    job = Ingest(spark, folder, ingest, followers=followers)
    if asked.once:
        job.run_to_end(has_flush=False)
    else:
        stop = threading.Event()
        threading.Thread(target=_await_end, args=(path / MORE, stop), daemon=True).start()
        job.run(stop)
    for follower in followers:
        follower.settle()
    spark.stop()


def _alarms(folder: PipelineFolder, rules: Path) -> AlarmFollower:
    return AlarmFollower(folder, load_rules(rules), publish=HandedOn(folder.path).publish)


def _await_end(more: Path, stop: threading.Event) -> None:
    wait = threading.Event()
    while more.exists():
        wait.wait(0.1)
    stop.set()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="lab.pipeline.driver")
    parser.add_argument("folder", type=Path)
    parser.add_argument("rows_per_batch", type=int)
    parser.add_argument("log", type=Path)
    parser.add_argument("--rules", type=Path, help="of alarms; else none are looked for")
    parser.add_argument("--once", action="store_true", help="what is recorded by now")
    parser.add_argument("--file-bytes-max", type=int, default=0, help="0: no bound")
    return parser


if __name__ == "__main__":
    main(sys.argv[1:])
