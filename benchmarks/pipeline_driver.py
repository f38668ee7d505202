"""Spark driver that measures the pipeline's jobs: a separate process, asked by JSON lines.

python -m benchmarks.pipeline_driver, then a line with its master; after that one line a question.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext

from benchmarks.roles.conversation import Answer, Question, converse
from gridstat.pipeline.alarm_rules import load_rules
from gridstat.pipeline.experiments import bins, read_samples
from gridstat.pipeline.jobs.alarm_follower import AlarmFollower
from gridstat.pipeline.jobs.ingest import Ingest, IngestSettings
from gridstat.pipeline.pipeline_folder import PipelineFolder
from gridstat.pipeline.spark_session import SparkSettings, spark_session
from gridstat.pipeline.stages.rollup import rollup_core

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from gridstat.pipeline.archive import Archive

CORE_COLUMNS: Final = "stream int, created timestamp, value double"
KIB_PER_MIB: Final = 1_024


class Driver:
    """One session; every question is one job, run to its end and timed."""

    def __init__(self, plan: Question) -> None:
        _keep_stdout_to_ourselves()
        self._rows_per_batch = int(plan["rows_per_batch"])
        settings = SparkSettings(master=str(plan["master"]), driver_memory=str(plan["memory"]))
        self._spark = spark_session(settings)
        self._live: threading.Thread | None = None
        self._stop = threading.Event()

    def ready(self) -> Answer:
        return {"ready": True}

    def answer(self, question: Question) -> Answer:
        steps: dict[str, Callable[..., Answer]] = {
            "core": self.core,
            "full": self.full,
            "bins": self.bins,
            "begin_live": self.begin_live,
            "end_live": self.end_live,
            "memory": self.memory,
        }
        options = {key: Path(str(value)) for key, value in question.items() if key != "do"}
        return steps[str(question["do"])](**options)

    def close(self) -> None:
        java = _java()
        self._spark.stop()
        if java is not None:
            java.stdin.close()
            java.wait()

    def core(self, log: Path, folder: Path) -> Answer:
        """Aggregate a log to count, mean, minimum and maximum of each second by Spark's windows."""
        reader = self._spark.readStream.format("gridstat").schema(CORE_COLUMNS)
        source = reader.option("rowsPerBatch", self._rows_per_batch).load(str(log))
        writer = rollup_core(source, 1).writeStream.format("noop").outputMode("append")
        began_s = time.monotonic()
        query = writer.option("checkpointLocation", str(folder)).trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.monotonic() - began_s
        rows = sum(int(progress.numInputRows) for progress in query.recentProgress)
        shutil.rmtree(folder)
        return {"seconds": seconds, "rows": rows}

    def full(self, log: Path, folder: Path) -> Answer:
        """Ingest a log to archive, quarantine and all rollups: the job as it is."""
        settings = IngestSettings(rows_per_batch=self._rows_per_batch)
        place = PipelineFolder(folder, log)
        ingest = Ingest(self._spark, place, settings)
        archive = _Timed(ingest.archive)
        ingest.archive.take = archive.take  # type: ignore[method-assign]
        began_s = time.monotonic()
        ingest.run_to_end()
        seconds = time.monotonic() - began_s
        figures = {
            "seconds": seconds,
            "archive_seconds": archive.seconds,
            "rows": ingest.archive.events.rows(),
            "quarantined": ingest.archive.quarantine.rows(),
            "rollups": ingest.rollups.by_window[1].rows(),
        }
        shutil.rmtree(folder)
        return figures

    def bins(self, samples: Path) -> Answer:
        return count_bins(self._spark, samples)

    def begin_live(self, log: Path, folder: Path) -> Answer:
        """Begin to ingest records as they come, and to check them by the usual rules."""
        place = PipelineFolder(folder, log)
        ingest = Ingest(self._spark, place, followers=[AlarmFollower(place, load_rules())])
        self._live = threading.Thread(target=ingest.run, args=(self._stop,))
        self._live.start()
        return {"begun": True}

    def end_live(self) -> Answer:
        assert self._live is not None
        self._stop.set()
        self._live.join()
        return {"ended": True}

    def memory(self) -> Answer:
        """Return the peak of the driver's resident memory, Python and Java together."""
        java = _java()
        assert java is not None
        return {"rss_mb": (_peak_kib(os.getpid()) + _peak_kib(java.pid)) / KIB_PER_MIB}


def count_bins(spark: SparkSession, samples: Path) -> Answer:
    """Count a folder of raw samples in bins of latency by the job; return its rows and its time."""
    began_s = time.monotonic()
    rows = [row.asDict() for row in bins(read_samples(spark, samples)).collect()]
    seconds = time.monotonic() - began_s
    return {"seconds": seconds, "rows": rows}


class _Timed:
    """Timer of the archive's part of a batch, over all batches."""

    def __init__(self, archive: Archive) -> None:
        self._take = archive.take
        self.seconds = 0.0

    def take(self, *arguments: Any, **named: Any) -> int:  # noqa: ANN401 - Passed on as they are.
        began_s = time.monotonic()
        try:
            return self._take(*arguments, **named)
        finally:
            self.seconds += time.monotonic() - began_s


def _java() -> Any:  # noqa: ANN401 - A Popen, which the library keeps to itself.
    gateway = SparkContext._gateway  # noqa: SLF001 - The only way to the process of Java.
    return None if gateway is None else gateway.proc


def _peak_kib(process_id: int) -> int:
    for line in Path(f"/proc/{process_id}/status").read_text(encoding="utf-8").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1])
    return 0


def _keep_stdout_to_ourselves() -> None:
    """Separate our standard output from Java's, whose lines would look like answers."""
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)


if __name__ == "__main__":
    sys.exit(converse(Driver))
