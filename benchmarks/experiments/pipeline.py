"""The data pipeline: its throughput, and the delay until events of a running grid are visible.

The recorder's sockets and disk, the log, the data source and the jobs are real. Speeds stand beside
those of the same aggregation in one process of Arrow, without Spark, and those of one processor
beside two.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from benchmarks.experiments.experiment import (
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
)
from benchmarks.machine import MachineWatch
from benchmarks.pipeline_live import LiveRun, Pace, measure_live
from benchmarks.pipeline_log import NS_PER_S, record_log
from benchmarks.processes import Processes, RoleProcess
from benchmarks.recorder_rate import best_rate, recorder_rates
from benchmarks.statistics import line_through
from gridstat.record.log_reader import LogReader
from gridstat.record.record_kinds import EVENTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PARTS = ("recorder", "batch", "workers", "live")
START_S_MAX = 300.0
STEP_S_MAX = 3_600.0
WARM_UP_ROWS = 100_000
GROWTH = 10
GROWTH_STEPS = 3


@dataclass(slots=True)
class Measured:
    """Figures and table rows so far."""

    figures: dict[str, Figure] = field(default_factory=dict)
    table: list[tuple[str, ...]] = field(default_factory=list)

    def note(self, what: str, rows: int, seconds: Sequence[float]) -> float:
        """Add a row to the table; return rows a second of the median run."""
        rate = rows / median(seconds)
        self.table.append((what, f"{rows:,}", f"{median(seconds):.1f}", f"{rate:,.0f}"))
        return rate


def measure(options: Options, progress: Progress) -> Result:
    watch = MachineWatch()
    measured = Measured()
    parts = options.names("only", known=PARTS)
    with _folder_of(options) as folder:
        if "recorder" in parts:
            progress(0.02, "recorder: from sockets to the disk")
            _measure_recorder(measured, options, folder)
        if "batch" in parts:
            _measure_batches(measured, options, progress, folder)
        if "workers" in parts:
            _measure_workers(measured, options, progress, folder)
        if "live" in parts:
            progress(0.85, "live: 500 streams, and the job behind them")
            _measure_live(measured, options, folder)
    progress(1.0, "done")
    return Result(
        figures={**measured.figures, **watch.figures(), "runs": options.whole("runs")},
        title="the pipeline on this machine",
        columns=("what", "rows", "seconds", "rows a second"),
        table=tuple(measured.table),
    )


def _measure_recorder(measured: Measured, options: Options, folder: Path) -> None:
    runs = recorder_rates(
        folder / "recorder", options.wholes("recorder_rates"), seconds=options.real("seconds")
    )
    for run in runs:
        lost = run.offered - run.recorded
        what = f"recorder, {run.offered:,} offered, {lost:,} lost"
        measured.note(what, run.recorded, [run.seconds])
    measured.figures["recorder_events_per_s"] = round(best_rate(runs))
    cpu_us = [run.cpu_us_per_event for run in runs if run.is_whole]
    measured.figures["recorder_cpu_us_per_event"] = middle(cpu_us)


def _measure_batches(
    measured: Measured, options: Options, progress: Progress, folder: Path
) -> None:
    """Measure core and full ingest on two processors, over logs that grow tenfold."""
    sizes = _sizes(options)
    progress(0.1, f"recording logs of up to {sizes[-1]:,} rows")
    logs = {rows: _log_of(folder, rows, options) for rows in {WARM_UP_ROWS, *sizes}}
    arrow_s = [_arrow_core_s(logs[sizes[-1]]) for _ in range(options.whole("runs"))]
    arrow = measured.note("core, one process of Arrow, no Spark", sizes[-1], arrow_s)
    with _driver("local[2]", options) as driver:
        progress(0.2, "warming up")
        _core(driver, logs[WARM_UP_ROWS], folder)
        _full(driver, logs[WARM_UP_ROWS], folder)
        progress(0.25, "core: count, mean, least and most of each second")
        cores = [_core(driver, logs[sizes[-1]], folder) for _ in range(options.whole("runs"))]
        full = {}
        for place, rows in enumerate(sizes):
            progress(0.35 + 0.3 * place / len(sizes), f"full ingest of {rows:,} rows")
            full[rows] = _full(driver, logs[rows], folder)
        rss_mb = driver.ask({"do": "memory"})["rss_mb"]
    core = measured.note("core", sizes[-1], [each["seconds"] for each in cores])
    rates = {rows: measured.note("full", rows, [each["seconds"]]) for rows, each in full.items()}
    largest = full[sizes[-1]]
    archive = measured.note("archive only", sizes[-1], [largest["archive_seconds"]])
    lost = sum(rows - each["rows"] - each["quarantined"] for rows, each in full.items())
    measured.figures |= {
        "rows": sizes[-1],
        "ingest_core_rows_per_s": round(core),
        "ingest_full_rows_per_s": round(rates[sizes[-1]]),
        "archive_rows_per_s": round(archive),
        "arrow_core_rows_per_s": round(arrow),
        "core_by_arrow": round(core / arrow, 3),
        "full_by_core": round(rates[sizes[-1]] / core, 3),
        "growth_exponent_rows": round(growth_exponent(full), 3),
        "driver_rss_mb": round(rss_mb),
        "lost": lost,
    }


def _measure_workers(
    measured: Measured, options: Options, progress: Progress, folder: Path
) -> None:
    """Measure the same work on one processor and on two, in turn."""
    rows = options.whole("workers_rows")
    log = _log_of(folder, rows, options)
    seconds: dict[str, dict[int, list[float]]] = {"core": {1: [], 2: []}, "full": {1: [], 2: []}}
    with _driver("local[1]", options) as one, _driver("local[2]", options) as two:
        for run in range(1 + options.whole("runs")):
            progress(0.65 + 0.05 * run, f"one worker and two, run {run}")
            for workers, driver in ((1, one), (2, two)):
                core, full = _core(driver, log, folder), _full(driver, log, folder)
                if run:  # The first run is a warm-up.
                    seconds["core"][workers].append(core["seconds"])
                    seconds["full"][workers].append(full["seconds"])
    for what, by_workers in seconds.items():
        for workers, found in by_workers.items():
            rate = measured.note(f"{what}, {workers} worker{'s' * (workers > 1)}", rows, found)
            measured.figures[f"{what}_{workers}_workers_rows_per_s"] = round(rate)
        speed_up = median(by_workers[1]) / median(by_workers[2])
        measured.figures[f"{what}_speedup_2_workers"] = round(speed_up, 3)


def _measure_live(measured: Measured, options: Options, folder: Path) -> None:
    streams, rate = options.whole("streams"), options.whole("rate")
    pace = Pace(streams, rate, options.real("live_s"), options.whole("swinging"))
    with Processes() as processes, _driver("local[2]", options) as driver:
        run: LiveRun = measure_live(processes, driver, folder, pace)
        rss_mb = driver.ask({"do": "memory"})["rss_mb"]
    measured.figures |= {
        "visible_s_p95": round(run.visible_s_p95, 3),
        "visible_s_p50": round(run.visible_s_p50, 3),
        "final_s_p95": round(run.final_s_p95, 3),
        "final_s_p50": round(run.final_s_p50, 3),
        "live_seen_share": round(run.seen_share, 6),
        "live_events_per_s": pace.streams * pace.rate,
        "live_swinging": pace.swinging,
        "live_driver_rss_mb": round(rss_mb),
    }


def growth_exponent(runs: dict[int, dict[str, Any]]) -> float:
    """Return the slope of log(seconds) over log(rows): 1 if twice the rows take twice the time."""
    sizes = sorted(runs)
    if len(sizes) < 2:
        return float("nan")
    seconds = [float(runs[rows]["seconds"]) for rows in sizes]
    return line_through(list(np.log(sizes)), list(np.log(seconds))).slope


def _arrow_core_s(log: Path) -> float:
    """Return the time of the core's aggregation with only the log's reader and Arrow."""
    began_s = time.monotonic()
    reader = LogReader(log, EVENTS)
    parts = []
    for piece in reader.slices(*reader.ends(), 1 << 62):
        for batch in reader.read(piece):
            second = batch.column("created_ns").to_numpy() // NS_PER_S
            value = batch.column("word").to_numpy().view(np.float64)
            parts.append(pa.table({"stream": batch.column("stream"), "s": second, "value": value}))
    aggregates = [("value", each) for each in ("count", "mean", "min", "max")]
    pa.concat_tables(parts).group_by(["stream", "s"], use_threads=False).aggregate(aggregates)
    return time.monotonic() - began_s


def _sizes(options: Options) -> list[int]:
    """Return the sizes of the logs, each ten times the last; with `full` one more."""
    largest = options.whole("rows") * (GROWTH if options.whole("full") else 1)
    steps = GROWTH_STEPS + bool(options.whole("full"))
    return [largest // GROWTH**step for step in reversed(range(steps))]


def _log_of(folder: Path, rows: int, options: Options) -> Path:
    log = folder / f"log-{rows}"
    if not log.exists():
        record_log(log, rows, streams=options.whole("streams"), rate=options.whole("rate"))
    return log


def _core(driver: RoleProcess, log: Path, folder: Path) -> dict[str, Any]:
    place = folder / f"core-{driver.pid}"
    question = {"do": "core", "log": str(log), "folder": str(place)}
    return driver.ask(question, within_s=STEP_S_MAX)


def _full(driver: RoleProcess, log: Path, folder: Path) -> dict[str, Any]:
    place = folder / f"full-{driver.pid}"
    question = {"do": "full", "log": str(log), "folder": str(place)}
    return driver.ask(question, within_s=STEP_S_MAX)


@contextmanager
def _driver(master: str, options: Options) -> Iterator[RoleProcess]:
    process = RoleProcess(master, [sys.executable, "-m", "benchmarks.pipeline_driver"])
    plan = {
        "master": master,
        "memory": options.text("memory"),
        "rows_per_batch": options.whole("rows_per_batch"),
    }
    try:
        process.ask(plan, within_s=START_S_MAX)
        yield process
    finally:
        process.end()


@contextmanager
def _folder_of(options: Options) -> Iterator[Path]:
    """Make a folder for some gigabytes, and remove it at the end."""
    parent = options.text("folder") or None
    made = Path(tempfile.mkdtemp(prefix="gridstat-pipeline-", dir=parent))
    try:
        yield made
    finally:
        shutil.rmtree(made)


PIPELINE = Experiment(
    name="pipeline",
    summary="recorder, ingest and archive in rows a second, and how soon a living grid is seen",
    parameters=(
        Parameter("runs", 3, "repetitions of core and of the workers' comparison", least=1),
        Parameter("rows", 10_000_000, "rows of the largest log", least=1),
        Parameter("full", 0, "1: a log ten times as large too"),
        Parameter("streams", 500, "streams of the logs and of the living grid", least=1),
        Parameter("swinging", 50, "streams of the living grid that swing, and raise an alarm"),
        Parameter("rate", 30, "events a second of each stream", least=1),
        Parameter("rows_per_batch", 2_000_000, "rows of a micro-batch", least=1),
        Parameter("memory", "2g", "memory of the driver's Java"),
        Parameter(
            "workers_rows", 2_000_000, "rows of the comparison of one worker and two", least=1
        ),
        Parameter(
            "recorder_rates", "300,450,600,750", "thousands of events a second, offered", least=1
        ),
        Parameter("seconds", 5.0, "how long each rate is offered to the recorder", least=0.01),
        Parameter("live_s", 60.0, "how long the living grid is looked at", least=1),
        Parameter("only", "", f"parts, by comma: {', '.join(PARTS)}"),
        Parameter("folder", "", "where the logs lie; a temporary one"),
    ),
    measure=measure,
)
