"""Where the time of an event goes (S3 §5.2.1): kernel and network, the hop's queue, the hop itself.

The source could only subtract: it measured the whole and the router's own share, and reckoned the
kernel's from the rest. Here the kernel stamps each datagram, so that queue and kernel come apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.errors import BenchmarkError
from benchmarks.experiments.experiment import (
    Comparison,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
)
from benchmarks.experiments.source_figures import (
    NOT_COMPARABLE_S3,
    S3_BASE_LOCAL_MEAN_US,
    S3_BASE_MEAN_US,
)
from benchmarks.samples import Label, write_samples
from benchmarks.statistics import NS_PER_US, WARM_UP_INTERPRETED_S, warm_up_count
from benchmarks.traced_hop import trace

if TYPE_CHECKING:
    from benchmarks.statistics import Int64s
    from benchmarks.traced_hop import Traced

PARTS = ("whole", "kernel", "queue", "local")


def parts_ns(traced: Traced) -> dict[str, Int64s]:
    """What each event spent where; kernel, queue and local sum up to the whole."""
    whole = traced.received_ns - traced.created_ns
    queue = traced.hop_taken_ns - traced.hop_kernel_ns
    local = traced.hop_sent_ns - traced.hop_taken_ns
    return {"whole": whole, "kernel": whole - queue - local, "queue": queue, "local": local}


def measure(options: Options, progress: Progress) -> Result:
    """Events one by one, through a hop that is traced."""
    tick_s, runs = options.whole("tick_ms") / 1e3, options.whole("runs")
    events = round((options.real("seconds") + WARM_UP_INTERPRETED_S) / tick_s)
    means: dict[str, list[float]] = {name: [] for name in PARTS}
    lost = 0
    for run in range(runs):
        progress(run / runs, f"repetition {run + 1}")
        traced = trace(events, tick_s)
        first = warm_up_count(traced.created_ns, warm_up_s=WARM_UP_INTERPRETED_S)
        kept = traced.after(first)
        if len(kept.created_ns) == 0:
            raise BenchmarkError("nothing came through", hint="is loopback up?")
        lost += kept.lost
        for name, values_ns in parts_ns(kept).items():
            means[name].append(float(np.mean(values_ns)) / NS_PER_US)
        if folder := options.text("samples"):
            label = Label("split", "s3", "reference", run + 1)
            write_samples(
                Path(folder),
                label,
                kept.created_ns,
                kept.received_ns,
                hop_kernel_ns=kept.hop_kernel_ns,
                hop_taken_ns=kept.hop_taken_ns,
                hop_sent_ns=kept.hop_sent_ns,
            )
    progress(1.0, "done")
    return _result(means, lost, runs)


def _result(means: dict[str, list[float]], lost: int, runs: int) -> Result:
    figures: dict[str, Figure] = {f"{name}_mean_us": middle(means[name], 1) for name in PARTS}
    for name in PARTS[1:]:
        shares = [part / whole for part, whole in zip(means[name], means["whole"], strict=True)]
        figures[f"{name}_share"] = middle(shares, 3)
    rows = [(name, str(figures[f"{name}_mean_us"]), _share(figures, name)) for name in PARTS]
    return Result(
        figures={**figures, "lost": lost, "runs": runs},
        title="where the time of an event goes, through a hop in plain Python (us)",
        columns=("part", "mean", "share"),
        table=tuple(rows),
        comparisons=tuple(
            Comparison(name, "S3 Fig 5.7", float(theirs), float(figures[name]), NOT_COMPARABLE_S3)
            for name, theirs in (
                ("whole_mean_us", S3_BASE_MEAN_US),
                ("local_mean_us", S3_BASE_LOCAL_MEAN_US),
            )
        ),
    )


def _share(figures: dict[str, Figure], name: str) -> str:
    return str(figures.get(f"{name}_share", ""))


SPLIT = Experiment(
    name="split",
    summary="where the time of an event goes: kernel, queue, and the hop itself",
    parameters=(
        Parameter("runs", 3, "repetitions", least=1),
        Parameter("seconds", 10.0, "measured time of one run, after its warm-up", least=0.01),
        Parameter("tick_ms", 10, "time between two events", least=1),
        Parameter("samples", "", "folder for raw samples as Parquet; none are kept without it"),
    ),
    measure=measure,
)
