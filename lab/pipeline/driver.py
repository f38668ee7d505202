"""A driver of its own, to be killed: ingests a log until told to end by a file, then flushes.

    python -m lab.pipeline.driver FOLDER ROWS_PER_BATCH LOG FILE_BYTES_MAX

It takes what is recorded while the file `more` lies in the folder, and once it is gone, all that is
there. No file may grow beyond the last number, unless it is 0.
"""

from __future__ import annotations

import resource
import sys
import threading
from pathlib import Path

from gridstat.pipeline.folder import PipelineFolder
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.session import QUICK_JAVA, SparkSettings, spark_session

MORE = "more"


def main(words: list[str]) -> None:
    path, rows, log, file_bytes_max = Path(words[0]), int(words[1]), Path(words[2]), int(words[3])
    if file_bytes_max:  # What a program sees of this is what it sees of a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
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
    folder = PipelineFolder(path, log)
    job = Ingest(spark, folder, IngestSettings(trigger_s=0.05, rows_per_batch=rows))
    stop = threading.Event()
    threading.Thread(target=_await_end, args=(path / MORE, stop), daemon=True).start()
    job.run(stop)
    spark.stop()


def _await_end(more: Path, stop: threading.Event) -> None:
    wait = threading.Event()
    while more.exists():
        wait.wait(0.1)
    stop.set()


if __name__ == "__main__":
    main(sys.argv[1:])
