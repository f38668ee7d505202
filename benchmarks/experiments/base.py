"""The base experiment of both sources in a managed cloud, beside raw C hops and other routers.

S0 §8.2: publisher - edge - edge - subscriber. S3 §5.2.1: publisher - one router - subscriber, with
the router's own share. `cloud` is a broker's cloud used by the public API; `core` the same routers'
core without a broker; `reference` the core in plain Python, as the sources set a managed language
beside C; `single` a C program that looks at nothing. Hops (but the Python one), receivers and
publishers are real-time alike, if this process may be: compared is what they do, not their rank.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan, run_chain
from benchmarks.cloud_chain import CloudChainPlan, run_cloud_chain
from benchmarks.experiments.experiment import (
    Comparison,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
    per_router_figures,
)
from benchmarks.experiments.source_figures import (
    NOT_COMPARABLE_S0,
    NOT_COMPARABLE_S3,
    S0_LOWER_BOUND_MEAN_US,
    S0_LOWER_BOUND_SD_US,
    S3_BASE_LOCAL_MEAN_US,
    S3_BASE_MANAGED_MEAN_US,
    S3_BASE_MAX_US,
    S3_BASE_MEAN_US,
    S3_BASE_MIN_US,
    S3_BASE_SD_US,
)
from benchmarks.rig import CORE, FLOOR_SINGLE, REFERENCE
from benchmarks.statistics import (
    NS_PER_US,
    Bin,
    Summary,
    histogram_mean,
    histogram_quantile,
    median_ratio,
)
from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

CLOUD = "cloud"
KINDS = (CLOUD, FLOOR_SINGLE, CORE, REFERENCE)
SOURCES = {"s0": 2, "s3": 1}
"""How many routers lie between publisher and subscriber."""

FIELDS = ("mean_us", "min_us", "max_us", "sd_us", "p50_us", "p99_us")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of any kind."""

    summary: Summary
    bins: tuple[Bin, ...]
    local: tuple[tuple[int, int], ...]
    lost: int
    broker_cpu_percent: float = 0.0


Runs = dict[tuple[str, str], list[Run]]
"""By source and kind, in the order of measuring."""


def measure(options: Options, progress: Progress) -> Result:
    """All kinds of hop in turn, without load."""
    load = os.getloadavg()[0]
    kinds = options.names("kinds", known=KINDS)
    runs = _run_all(kinds, options, progress)
    progress(1.0, "done")
    figures: dict[str, Figure] = {
        **_figures(runs),
        "tick_ms": options.whole("tick_ms"),
        "scheduling": str(scheduling_granted(None, ROUTER_PRIORITY)),
        "machine_load_before": round(load, 2),
        "runs": options.whole("runs"),
    }
    return Result(
        figures=figures,
        title="latency (us), the first router's own share of it, and bins of 0.1 ms (per cent)",
        columns=("source", "routers", "kind", "mean / min / max / sd", "local mean", "bins"),
        table=tuple(_rows(runs)),
        comparisons=tuple(_comparisons(figures)),
    )


def _run_all(kinds: Sequence[str], options: Options, progress: Progress) -> Runs:
    """Repetition outermost; the kinds of one source next to each other, in alternating order."""
    runs: Runs = {}
    repetitions = options.whole("runs")
    steps = [
        (source, kind)
        for repetition in range(repetitions)
        for source in SOURCES
        for kind in (kinds if repetition % 2 == 0 else tuple(reversed(kinds)))
    ]
    for index, (source, kind) in enumerate(steps):
        progress(index / len(steps), f"{source}: {kind}, {SOURCES[source]} routers")
        runs.setdefault((source, kind), []).append(_run(kind, SOURCES[source], options))
    return runs


def _run(kind: str, routers: int, options: Options) -> Run:
    seconds, tick_ms = options.real("seconds"), options.whole("tick_ms")
    if kind == CLOUD:
        found = run_cloud_chain(
            CloudChainPlan(routers, tick_ms), seconds, folder=options.text("folder")
        )
        return Run(found.summary, found.bins, found.local, found.lost, found.broker_cpu_percent)
    plan = ChainPlan(kind, routers, reference_s=tick_ms / 1e3, is_real_time=True)
    plain = run_chain(plan, seconds)
    return Run(plain.summary, plain.bins, plain.local, plain.lost)


def _figures(runs: Runs) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for (source, kind), kept in runs.items():
        prefix = _prefix(source, kind)
        for field in FIELDS:
            figures[f"{prefix}_{field}"] = _middle_us(kept, field)
        if any(run.local for run in kept):
            local = [run.local for run in kept]
            mean_us = [histogram_mean(each) / NS_PER_US for each in local]
            p99_us = [histogram_quantile(each, 0.99) / NS_PER_US for each in local]
            figures[f"{prefix}_local_mean_us"] = middle(mean_us, 2)
            figures[f"{prefix}_local_p99_us"] = middle(p99_us, 2)
    ratios = [ratio for source in SOURCES if (ratio := _ratio(runs, source)) is not None]
    for source in SOURCES:
        if (ratio := _ratio(runs, source)) is not None:
            figures[f"{source}_latency_ratio_to_floor"] = round(ratio, 3)
    if ratios:
        figures["latency_ratio_to_floor"] = round(max(ratios), 3)
    ours = [run for (_, kind), kept in runs.items() if kind == CLOUD for run in kept]
    if ours:
        figures["lost"] = sum(run.lost for run in ours)
        figures["broker_cpu_percent"] = middle([run.broker_cpu_percent for run in ours], 2)
        per_router_us = [
            _middle_us(kept, "mean_us") / SOURCES[source]
            for (source, kind), kept in runs.items()
            if kind == CLOUD
        ]
        figures |= per_router_figures(max(per_router_us))
    return figures


def _ratio(runs: Runs, source: str) -> float | None:
    """The median latency of the cloud by that of as many raw hops, pair by pair."""
    ours, floor = runs.get((source, CLOUD)), runs.get((source, FLOOR_SINGLE))
    if not ours or not floor:
        return None
    return median_ratio([run.summary.p50_us for run in ours], [run.summary.p50_us for run in floor])


def _prefix(source: str, kind: str) -> str:
    return source if kind == CLOUD else f"{source}_{kind}"


def _middle_us(kept: Sequence[Run], field: str) -> float:
    return middle([float(getattr(run.summary, field)) for run in kept], 1)


def _rows(runs: Runs) -> Iterator[tuple[str, ...]]:
    for (source, kind), kept in runs.items():
        local = [histogram_mean(run.local) / NS_PER_US for run in kept if run.local]
        bins = " ".join(f"{part.lower_us / 1e3:.1f}: {part.percent:.2f}" for part in kept[0].bins)
        yield (
            source.upper(),
            str(SOURCES[source]),
            kind,
            " / ".join(f"{_middle_us(kept, field):.0f}" for field in FIELDS[:4]),
            f"{middle(local, 1)}" if local else "",
            bins,
        )


def _comparisons(figures: dict[str, Figure]) -> Iterator[Comparison]:
    for name, source, theirs, reason in (
        ("s0_mean_us", "S0 Tab 8.1", S0_LOWER_BOUND_MEAN_US, NOT_COMPARABLE_S0),
        ("s0_sd_us", "S0 Tab 8.1", S0_LOWER_BOUND_SD_US, NOT_COMPARABLE_S0),
        ("s3_mean_us", "S3 Fig 5.7", S3_BASE_MEAN_US, NOT_COMPARABLE_S3),
        ("s3_min_us", "S3 Fig 5.7", S3_BASE_MIN_US, NOT_COMPARABLE_S3),
        ("s3_max_us", "S3 Fig 5.7", S3_BASE_MAX_US, NOT_COMPARABLE_S3),
        ("s3_sd_us", "S3 Fig 5.7", S3_BASE_SD_US, NOT_COMPARABLE_S3),
        ("s3_local_mean_us", "S3 Fig 5.7", S3_BASE_LOCAL_MEAN_US, NOT_COMPARABLE_S3),
        ("s3_reference_mean_us", "S3 Fig 5.7, Java", S3_BASE_MANAGED_MEAN_US, NOT_COMPARABLE_S3),
    ):
        if name in figures:
            yield Comparison(name, source, float(theirs), float(figures[name]), reason)


BASE = Experiment(
    name="base",
    summary="latency across one and two routers of a managed cloud, beside raw C hops",
    parameters=(
        Parameter("runs", 5, "interleaved repetitions without load"),
        Parameter("seconds", 20.0, "measured time of one run, after its warm-up"),
        Parameter("tick_ms", 10, "time between two events of the reference"),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
        Parameter("folder", "", "where the cloud's files lie; a temporary one"),
    ),
    measure=measure,
)
