"""A chain of routers that each feed a load subscriber as well (S0 §8.5, S3 §5.2.5)."""

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
    S0_MULTICAST_MEAN_US,
    S0_MULTICAST_RECEIVED_PER_MS,
    S3_MULTICAST_MEAN_US,
)
from benchmarks.rig import CORE
from benchmarks.statistics import model_mean_ms, multicast_events_per_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

COLUMNS = (
    "kind",
    "load variables",
    "routers",
    "mean",
    "model of S0",
    "sd",
    "p99",
    "published",
    "by Function 8.1",
    "received",
    "by Function 8.6",
    "CPU %",
    "drop %",
)


def measure(options: Options, progress: Progress) -> Result:
    """Measure the core at every length and load; floors and reference at the longest chain."""
    runs = run_all(_plans(options), options.real("seconds"), progress)
    return Result(
        figures={**_figures(runs), **totals(runs), "runs": options.whole("runs")},
        title="multicast: latency of the reference (us), throughput (events/ms), CPU by router (%)",
        columns=COLUMNS,
        table=tuple(_row(plan, kept) for plan, kept in runs.items()),
        comparisons=tuple(_comparisons(runs)),
    )


def _plans(options: Options) -> Iterator[ChainPlan]:
    lengths, kinds = options.wholes("routers"), options.names("kinds", known=KINDS)
    for _ in range(options.whole("runs")):
        for load in options.wholes("loads"):
            for length in lengths:
                for kind in kinds:
                    if kind == CORE or length == max(lengths):
                        yield ChainPlan(kind, length, load, is_multicast=True)


def _predicted_per_ms(plan: ChainPlan, kept: list[ChainRun]) -> float:
    return middle(
        [
            multicast_events_per_ms(
                run.published_per_ms, plan.routers, reference_per_ms=run.reference_per_ms
            )
            for run in kept
        ]
    )


def _figures(runs: ChainRuns) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for plan, kept in runs.items():
        name = name_of(plan)
        figures[f"{name}_mean_us"] = middle_us(kept, "mean_us")
        figures[f"{name}_p99_us"] = middle_us(kept, "p99_us")
        figures[f"{name}_received_per_ms"] = middle_of(kept, "received_per_ms")
        figures[f"{name}_predicted_per_ms"] = _predicted_per_ms(plan, kept)
        figures[f"{name}_drop_percent"] = middle_of(kept, "drop_percent")
    return figures


def _row(plan: ChainPlan, kept: list[ChainRun]) -> tuple[str, ...]:
    published_per_ms = middle_of(kept, "published_per_ms")
    return (
        plan.kind,
        str(plan.load_variables),
        str(plan.routers),
        f"{middle_us(kept, 'mean_us'):.1f}",
        f"{1e3 * model_mean_ms(plan.routers, published_per_ms):.0f}",
        f"{middle_us(kept, 'sd_us'):.1f}",
        f"{middle_us(kept, 'p99_us'):.1f}",
        f"{published_per_ms:.3f}",
        f"{middle_of(kept, 'published_per_ms_predicted'):.3f}",
        f"{middle_of(kept, 'received_per_ms'):.3f}",
        f"{_predicted_per_ms(plan, kept):.3f}",
        cpu_text(kept),
        f"{middle_of(kept, 'drop_percent'):.3f}",
    )


def _comparisons(runs: ChainRuns) -> Iterator[Comparison]:
    for plan, kept in runs.items():
        load, routers = plan.load_variables, plan.routers
        if plan.kind != CORE or routers > 4:
            continue
        mean_us, received = middle_us(kept, "mean_us"), middle_of(kept, "received_per_ms")
        mean_name, received_name = f"{name_of(plan)}_mean_us", f"{name_of(plan)}_received_per_ms"
        if load in S0_MULTICAST_MEAN_US:
            theirs = float(S0_MULTICAST_MEAN_US[load][routers - 1])
            yield Comparison(mean_name, "S0 §8.5", theirs, mean_us, NOT_COMPARABLE_S0)
            theirs = S0_MULTICAST_RECEIVED_PER_MS[load][routers - 1]
            yield Comparison(received_name, "S0 §8.5", theirs, received, NOT_COMPARABLE_S0)
        if load in S3_MULTICAST_MEAN_US and routers == 4:
            theirs = S3_MULTICAST_MEAN_US[load]
            yield Comparison(mean_name, "S3 Fig 5.24", theirs, mean_us, NOT_COMPARABLE_S3)


MULTICAST = Experiment(
    name="multicast",
    summary="a chain of 4 routers that each feed a load subscriber too",
    parameters=(
        Parameter("runs", 3, "interleaved repetitions", least=1),
        Parameter("seconds", 2.0, "measured time of one chain, after its warm-up", least=0.01),
        Parameter("routers", "1,2,3,4", "lengths of the chain, by comma", least=1),
        Parameter("loads", "0,20,40,80,120", "load variables, by comma", least=0),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure,
)
