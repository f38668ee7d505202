"""Multicast with rate filtering (S0 §8.6): f of 4 load subscribers take every second event.

There are two predictions: by S0 Function 8.8 from the publishing rate, and exactly, by the rate
law, from the published time stamps. Counted deliveries must equal the second.
"""

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
from benchmarks.experiments.source_figures import NOT_COMPARABLE_S0, S0_FILTER
from benchmarks.rig import CORE, FLOORS
from benchmarks.statistics import filtered_events_per_ms

if TYPE_CHECKING:
    from collections.abc import Iterator

SUBSCRIBERS = 4
COLUMNS = (
    "kind",
    "load variables",
    "f",
    "mean",
    "sd",
    "p99",
    "published",
    "received",
    "by Function 8.8",
    "deliveries due",
    "deliveries counted",
    "CPU %",
    "drop %",
)


def measure(options: Options, progress: Progress) -> Result:
    """Measure every load with f = 0 … 4; a floor cannot filter and runs with f = 0 only."""
    runs = run_all(_plans(options), options.real("seconds"), progress)
    return Result(
        figures={**_figures(runs), **totals(runs), "runs": options.whole("runs")},
        title="rate filter: latency of the reference (us), throughput (events/ms), CPU (%)",
        columns=COLUMNS,
        table=tuple(_row(plan, kept) for plan, kept in runs.items()),
        comparisons=tuple(_comparisons(runs)),
    )


def _plans(options: Options) -> Iterator[ChainPlan]:
    for _ in range(options.whole("runs")):
        for load in options.wholes("loads"):
            for halved in options.wholes("halved"):
                for kind in options.names("kinds", known=KINDS):
                    if halved == 0 or kind not in FLOORS:
                        yield ChainPlan(kind, SUBSCRIBERS, load, is_multicast=True, halved=halved)


def _predicted_per_ms(plan: ChainPlan, kept: list[ChainRun]) -> float:
    return middle(
        [
            filtered_events_per_ms(
                run.published_per_ms,
                SUBSCRIBERS,
                halved=plan.halved,
                reference_per_ms=run.reference_per_ms,
            )
            for run in kept
        ]
    )


def _figures(runs: ChainRuns) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for plan, kept in runs.items():
        name = f"{name_of(plan)}_f{plan.halved}"
        figures[f"{name}_mean_us"] = middle_us(kept, "mean_us")
        figures[f"{name}_received_per_ms"] = middle_of(kept, "received_per_ms")
        figures[f"{name}_predicted_per_ms"] = _predicted_per_ms(plan, kept)
        figures[f"{name}_cpu_percent"] = middle([sum(run.cpu_percent) for run in kept], 2)
    ours = [run for plan, kept in runs.items() if plan.kind == CORE for run in kept]
    figures["deliveries_due"] = sum(run.expected for run in ours)
    figures["deliveries_counted"] = sum(run.received for run in ours)
    return figures


def _row(plan: ChainPlan, kept: list[ChainRun]) -> tuple[str, ...]:
    return (
        plan.kind,
        str(plan.load_variables),
        str(plan.halved),
        f"{middle_us(kept, 'mean_us'):.1f}",
        f"{middle_us(kept, 'sd_us'):.1f}",
        f"{middle_us(kept, 'p99_us'):.1f}",
        f"{middle_of(kept, 'published_per_ms'):.3f}",
        f"{middle_of(kept, 'received_per_ms'):.3f}",
        f"{_predicted_per_ms(plan, kept):.3f}",
        f"{sum(run.expected for run in kept)}",
        f"{sum(run.received for run in kept)}",
        cpu_text(kept),
        f"{middle_of(kept, 'drop_percent'):.3f}",
    )


def _comparisons(runs: ChainRuns) -> Iterator[Comparison]:
    for plan, kept in runs.items():
        printed = S0_FILTER.get((plan.load_variables, plan.halved))
        if plan.kind != CORE or printed is None:
            continue
        name, source = f"{name_of(plan)}_f{plan.halved}", "S0 Tabs 8.28-8.32"
        ours = (middle_us(kept, "mean_us"), middle_of(kept, "received_per_ms"))
        for field, theirs, mine in zip(("mean_us", "received_per_ms"), printed, ours, strict=False):
            yield Comparison(f"{name}_{field}", source, float(theirs), mine, NOT_COMPARABLE_S0)


RATE_FILTER = Experiment(
    name="rate-filter",
    summary="multicast in a chain of 4, with f of the 4 load subscribers at half rate",
    parameters=(
        Parameter("runs", 3, "interleaved repetitions", least=1),
        Parameter("seconds", 2.0, "measured time of one chain, after its warm-up", least=0.01),
        Parameter("loads", "40,80", "load variables, by comma", least=0),
        Parameter("halved", "0,1,2,3,4", "subscribers at half rate, by comma", least=0),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure,
)
