"""Latency without load (S0 §8.2, S3 §5.2.1) and of one router under load (S0 §8.3, S3 §5.2.3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan, ChainRun
from benchmarks.experiments.chain_runs import (
    KINDS,
    ChainRuns,
    cpu_text,
    middle_of,
    middle_us,
    name_of,
    run_all,
    totals,
)
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
    NOT_COMPARABLE_S0,
    NOT_COMPARABLE_S3,
    S0_LOAD_MEAN_US,
    S0_LOWER_BOUND_MEAN_US,
    S0_LOWER_BOUND_SD_US,
    S3_BASE_LOCAL_MEAN_US,
    S3_BASE_MEAN_US,
    S3_LOAD_MEAN_US,
)
from benchmarks.rig import CORE
from benchmarks.statistics import NS_PER_US, histogram_quantile

if TYPE_CHECKING:
    from collections.abc import Iterator

LOAD_COLUMNS = (
    "kind",
    "load variables",
    "mean",
    "sd",
    "p95",
    "p99",
    "max",
    "published",
    "by Function 8.1",
    "received",
    "CPU %",
    "drop %",
)


def measure_load(options: Options, progress: Progress) -> Result:
    """Measure one router with more and more load variables."""
    plans = (
        ChainPlan(kind, 1, load)
        for _ in range(options.whole("runs"))
        for load in options.wholes("loads")
        for kind in options.names("kinds", known=KINDS)
    )
    runs = run_all(plans, options.real("seconds"), progress)
    figures: dict[str, Figure] = {}
    for plan, kept in runs.items():
        figures[f"{name_of(plan)}_mean_us"] = middle_us(kept, "mean_us")
        figures[f"{name_of(plan)}_p99_us"] = middle_us(kept, "p99_us")
        figures[f"{name_of(plan)}_cpu_percent"] = middle([run.cpu_percent[0] for run in kept], 2)
        figures[f"{name_of(plan)}_received_per_ms"] = middle_of(kept, "received_per_ms")
    return Result(
        figures={**figures, **totals(runs), "runs": options.whole("runs")},
        title="one router under load: latency of the reference (us), throughput (events/ms)",
        columns=LOAD_COLUMNS,
        table=tuple(_load_row(plan, kept) for plan, kept in runs.items()),
        comparisons=tuple(_load_comparisons(runs)),
    )


def _load_row(plan: ChainPlan, kept: list[ChainRun]) -> tuple[str, ...]:
    latencies = ("mean_us", "sd_us", "p95_us", "p99_us", "max_us")
    return (
        plan.kind,
        str(plan.load_variables),
        *(f"{middle_us(kept, field):.1f}" for field in latencies),
        f"{middle_of(kept, 'published_per_ms'):.3f}",
        f"{middle_of(kept, 'published_per_ms_predicted'):.3f}",
        f"{middle_of(kept, 'received_per_ms'):.3f}",
        cpu_text(kept),
        f"{middle_of(kept, 'drop_percent'):.3f}",
    )


def _load_comparisons(runs: ChainRuns) -> Iterator[Comparison]:
    for plan, kept in runs.items():
        if plan.kind != CORE:
            continue
        name, mean_us = f"{name_of(plan)}_mean_us", middle_us(kept, "mean_us")
        if (theirs := S0_LOAD_MEAN_US.get(plan.load_variables)) is not None:
            yield Comparison(name, "S0 Tabs 8.7-8.9", theirs, mean_us, NOT_COMPARABLE_S0)
        if (printed := S3_LOAD_MEAN_US.get(plan.load_variables)) is not None:
            yield Comparison(name, "S3 Fig 5.14", printed, mean_us, NOT_COMPARABLE_S3)


def measure_lower_bound(options: Options, progress: Progress) -> Result:
    """Measure one and two routers without load: means, bins, and the router's own share."""
    plans = (
        ChainPlan(kind, routers)
        for _ in range(options.whole("runs"))
        for routers in (1, 2)
        for kind in options.names("kinds", known=KINDS)
    )
    runs = run_all(plans, options.real("seconds"), progress)
    figures: dict[str, Figure] = {}
    for plan, kept in runs.items():
        for field in ("mean_us", "sd_us", "min_us", "max_us"):
            figures[f"{name_of(plan)}_{field}"] = middle_us(kept, field)
        if plan.kind == CORE:
            for share, name in ((0.5, "p50"), (0.99, "p99")):
                local = [histogram_quantile(run.local, share) / NS_PER_US for run in kept]
                figures[f"{name_of(plan)}_local_{name}_us"] = middle(local, 1)
    return Result(
        figures={**figures, **totals(runs), "runs": options.whole("runs")},
        title="latency without load, in bins of 0.1 ms",
        columns=("kind", "routers", "from (ms)", "to (ms)", "events", "%"),
        table=tuple(_bin_rows(runs)),
        comparisons=tuple(_lower_bound_comparisons(figures)),
    )


def _bin_rows(runs: ChainRuns) -> Iterator[tuple[str, ...]]:
    for plan, kept in runs.items():
        for part in kept[0].bins:
            edges = (f"{edge_us / 1e3:.1f}" for edge_us in (part.lower_us, part.upper_us))
            yield (plan.kind, str(plan.routers), *edges, str(part.count), f"{part.percent:.3f}")


def _lower_bound_comparisons(figures: dict[str, Figure]) -> Iterator[Comparison]:
    for name, source, theirs, reason in (
        ("load0_routers2_mean_us", "S0 Tab 8.1", S0_LOWER_BOUND_MEAN_US, NOT_COMPARABLE_S0),
        ("load0_routers2_sd_us", "S0 Tab 8.1", S0_LOWER_BOUND_SD_US, NOT_COMPARABLE_S0),
        ("load0_routers1_mean_us", "S3 Fig 5.7", S3_BASE_MEAN_US, NOT_COMPARABLE_S3),
        ("load0_routers1_local_p50_us", "S3 Fig 5.7", S3_BASE_LOCAL_MEAN_US, NOT_COMPARABLE_S3),
    ):
        if name in figures:
            yield Comparison(name, source, float(theirs), float(figures[name]), reason)


LOAD = Experiment(
    name="load",
    summary="one router under a growing number of load variables",
    parameters=(
        Parameter("runs", 3, "interleaved repetitions", least=1),
        Parameter("seconds", 2.0, "measured time of one load, after its warm-up", least=0.01),
        Parameter(
            "loads", "0,10,20,40,60,80,120,160,180,200,240", "load variables, by comma", least=0
        ),
        Parameter("kinds", "core,single", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure_load,
)

LOWER_BOUND = Experiment(
    name="lower-bound",
    summary="latency through one and two routers without any load, in bins",
    parameters=(
        Parameter("runs", 3, "interleaved repetitions", least=1),
        Parameter("seconds", 5.0, "measured time of one chain, after its warm-up", least=0.01),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure_lower_bound,
)
