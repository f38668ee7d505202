"""Latency distribution of one router by the pipeline's Spark job (S3 §5.2.1, Fig 5.4).

The raw samples of real events through one router are kept as Parquet, the Spark job counts them in
bins, and NumPy counts the same files again: both counts must agree, sum up to all samples, and
their shares to 100 per cent. Then as many samples as the sources had at most, and more, are drawn
from the measured latencies, and the job counts those.
"""

from __future__ import annotations

import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from benchmarks.chain import ChainPlan
from benchmarks.experiments.experiment import (
    AWAKE,
    Comparison,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.experiments.source_figures import (
    NOT_COMPARABLE_S3,
    S3_BASE_SAMPLES,
    S3_BASE_WITHIN_US,
)
from benchmarks.lanes import RING_EVENTS, Cut, Lanes
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.processes import RoleProcess
from benchmarks.rig import CORE
from benchmarks.samples import Label, write_samples
from benchmarks.statistics import NS_PER_US, WARM_UP_S
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from benchmarks.statistics import Int64s

    CountBins = Callable[[Path], dict[str, Any]]
    # The Spark job over a folder of samples: the rows of its table, and its seconds.

WIDTH_US = 100
SAMPLES_PER_FILE = 1_000_000
START_S_MAX = 300.0
JOB_S_MAX = 600.0
BEGAN_NS = 1_700_000_000_000_000_000
SEED = 88


@dataclass(frozen=True, slots=True)
class Counted:
    """Counts of the Spark job for a folder of samples, beside the counts of NumPy."""

    rows: list[dict[str, Any]]
    seconds: float
    direct: dict[int, int]
    """Samples by upper edge of a bin, counted without Spark."""

    @property
    def samples(self) -> int:
        return sum(self.direct.values())

    @property
    def samples_in_bins(self) -> int:
        return sum(int(row["samples"]) for row in self.rows)

    @property
    def is_equal(self) -> bool:
        """Return whether both counts are equal in every bin."""
        return {int(row["upper_us"]): int(row["samples"]) for row in self.rows} == self.direct

    def percent_within(self, upper_us: int) -> float:
        within = sum(int(row["samples"]) for row in self.rows if row["upper_us"] <= upper_us)
        return 100.0 * within / self.samples_in_bins

    def figures(self, prefix: str) -> dict[str, Figure]:
        percent = sum(float(row["percent"]) for row in self.rows)
        return {
            f"{prefix}samples": self.samples,
            f"{prefix}bins": len(self.rows),
            f"{prefix}bins_samples": self.samples_in_bins,
            f"{prefix}bins_percent_sum": round(percent, 6),
            f"{prefix}bins_equal_direct_count": "yes" if self.is_equal else "no",
            f"{prefix}job_s": round(self.seconds, 2),
        }


def measure(options: Options, progress: Progress) -> Result:
    """Measure, then count in a separate Spark driver."""
    return measure_with(_spark_driver, options, progress)


def measure_with(
    start_job: Callable[[Options], AbstractContextManager[CountBins]],
    options: Options,
    progress: Progress,
) -> Result:
    """Measure samples through one router, draw many more from them, and count both by the job.

    The job starts after the measurement, so that Spark takes no processor time from the router.
    """
    watch = MachineWatch()
    with tempfile.TemporaryDirectory(dir=options.text("folder") or None) as name:
        measured, large = Path(name, "measured"), Path(name, "large")
        with processors_awake(is_wanted=bool(options.whole("awake"))) as awake:
            lost = _measure_samples(measured, options, progress)
        progress(0.8, "counting in bins")
        with start_job(options) as count_bins:
            first = _counted(count_bins, measured)
            progress(0.85, f"drawing {options.whole('large'):,} samples, and counting them")
            _draw_samples(large, latencies_in(measured), options.whole("large"))
            second = _counted(count_bins, large)
    progress(1.0, "done")
    within = {f"within_{upper}_us_percent": upper for upper in S3_BASE_WITHIN_US}
    figures: dict[str, Figure] = {
        **first.figures(""),
        **{field: round(first.percent_within(upper), 4) for field, upper in within.items()},
        **second.figures("large_"),
        "large_samples_per_s": round(second.samples / second.seconds),
        "lost": lost,
        "processors_awake": awake,
        **watch.figures(),
        "runs": options.whole("runs"),
    }
    return Result(
        figures=figures,
        title="latency through one router, in bins by the Spark job",
        columns=("us", "samples", "%", "% to here"),
        table=tuple(_row(row) for row in first.rows),
        comparisons=tuple(_comparisons(figures, within)),
    )


def latencies_in(folder: Path) -> Int64s:
    """Return every latency in a folder of samples, in ns."""
    table = pq.read_table(folder, columns=["created_ns", "received_ns"])
    created_ns, received_ns = (table.column(name).to_numpy() for name in table.column_names)
    latencies: Int64s = received_ns - created_ns
    return latencies


def bin_counts(latencies_ns: Int64s) -> dict[int, int]:
    """Return samples by upper edge of their bin: 1 to 100 µs, 101 to 200 µs and so on."""
    whole_us = np.maximum(latencies_ns // NS_PER_US, 1)
    uppers, counts = np.unique(-(-whole_us // WIDTH_US) * WIDTH_US, return_counts=True)
    return dict(zip(uppers.tolist(), counts.tolist(), strict=True))


def _measure_samples(folder: Path, options: Options, progress: Progress) -> int:
    """Store the samples of every repetition in the folder; return the number of lost events."""
    tick_s, seconds = options.whole("tick_ms") / 1e3, options.real("seconds")
    warm_up_s = min(WARM_UP_S, seconds)
    if (seconds + warm_up_s) / tick_s > RING_EVENTS:
        raise LayoutError(
            f"seconds = {seconds:g} is too long: a run keeps at most {RING_EVENTS:,} events",
            hint="more samples come from more runs",
        )
    lost, runs = 0, options.whole("runs")
    with Lanes({CORE: ChainPlan(CORE, 1, reference_s=tick_s, is_real_time=True)}) as lanes:
        for run in range(runs):
            progress(0.8 * run / runs, f"repetition {run + 1}")
            label = Label("distribution", "s3", CORE, run + 1)
            lanes.begin(seconds + warm_up_s, [0.0])
            found = lanes.finish(Cut(warm_up_s, samples=str(folder), label=label))
            lost += found[CORE].lost
    return lost


def _draw_samples(folder: Path, latencies_ns: Int64s, count: int) -> None:
    """Write so many samples, each with a latency drawn from the measured ones."""
    chosen = np.random.default_rng(SEED)
    for number, first in enumerate(range(0, count, SAMPLES_PER_FILE), start=1):
        size = min(SAMPLES_PER_FILE, count - first)
        created_ns = BEGAN_NS + (first + np.arange(size, dtype=np.int64)) * NS_PER_US
        label = Label("distribution", "s3", "drawn", number)
        write_samples(folder, label, created_ns, created_ns + chosen.choice(latencies_ns, size))


def _counted(count_bins: CountBins, folder: Path) -> Counted:
    answer = count_bins(folder)
    return Counted(answer["rows"], float(answer["seconds"]), bin_counts(latencies_in(folder)))


def _row(row: dict[str, Any]) -> tuple[str, ...]:
    percents = (f"{float(row[name]):.4f}" for name in ("percent", "percent_to"))
    return (str(row["range"]), str(row["samples"]), *percents)


def _comparisons(figures: dict[str, Figure], within: dict[str, int]) -> Iterator[Comparison]:
    for field, upper in within.items():
        theirs = 100.0 * S3_BASE_WITHIN_US[upper] / S3_BASE_SAMPLES
        ours = float(figures[field])
        yield Comparison(field, "S3 Fig 5.4", theirs, ours, NOT_COMPARABLE_S3)


@contextmanager
def _spark_driver(options: Options) -> Iterator[CountBins]:
    process = RoleProcess("spark", [sys.executable, "-m", "benchmarks.pipeline_driver"])
    plan = {"master": "local[2]", "memory": options.text("memory"), "rows_per_batch": 1}
    try:
        process.ask(plan, within_s=START_S_MAX)
        yield lambda folder: process.ask({"do": "bins", "samples": str(folder)}, within_s=JOB_S_MAX)
    finally:
        process.end()


DISTRIBUTION = Experiment(
    name="distribution",
    summary="latency through one router in bins, by the Spark job, up to ten million samples",
    parameters=(
        Parameter("runs", 5, "repetitions", least=1),
        Parameter("seconds", 50.0, "measured time of one run, after its warm-up", least=0.01),
        Parameter("tick_ms", 1, "time between two events", least=1),
        Parameter("large", 10_000_000, "samples drawn from the measured ones", least=1),
        AWAKE,
        Parameter("memory", "2g", "memory of the driver's Java"),
        Parameter("folder", "", "where the samples lie meanwhile; a temporary one"),
    ),
    measure=measure,
)
