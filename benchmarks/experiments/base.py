"""The base experiment of both sources in a managed cloud, beside other hops in the same seconds.

S0 §8.2: publisher - edge - edge - subscriber; S3 §5.2.1: one router, and its own share. `cloud` is
a broker's cloud used by the public API; `core` the same core without a broker; `reference` that in
plain Python, as the sources had a managed language beside C; `single` a C program that only
forwards. All but the Python hop are real-time alike, if permitted, so that the hops are compared.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from benchmarks.chain import ChainPlan
from benchmarks.cloud_chain import CloudChain
from benchmarks.cloud_plan import chain
from benchmarks.cloud_rig import CloudRig
from benchmarks.experiments.experiment import (
    AWAKE,
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
from benchmarks.lanes import Cut, Lanes
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.rig import CORE, FLOOR_SINGLE, REFERENCE
from benchmarks.samples import Label
from benchmarks.statistics import (
    NS_PER_US,
    WARM_UP_INTERPRETED_S,
    Bin,
    Histogram,
    Summary,
    histogram_mean,
    histogram_quantile,
    median_ratio,
)
from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

CLOUD = "cloud"
KINDS = (CLOUD, FLOOR_SINGLE, CORE, REFERENCE)
SOURCES = {"s0": 2, "s3": 1}
"""Number of routers between publisher and subscriber, by source."""

FIELDS = ("mean_us", "min_us", "max_us", "sd_us", "p50_us", "p90_us", "p99_us")


@dataclass(frozen=True, slots=True)
class Run:
    """One run of any kind."""

    summary: Summary
    bins: tuple[Bin, ...]
    local: Histogram
    lost: int
    broker_cpu_percent: float = 0.0


Runs = dict[tuple[str, str], list[Run]]
"""Runs by source and kind, in the order of measuring."""


def measure(options: Options, progress: Progress) -> Result:
    """Measure all kinds of hop, without load."""
    watch = MachineWatch()
    kinds = options.names("kinds", known=KINDS)
    with processors_awake(is_wanted=bool(options.whole("awake"))) as awake:
        runs = _run_all(kinds, options, progress)
    progress(1.0, "done")
    figures: dict[str, Figure] = {
        **_figures(runs),
        "tick_ms": options.whole("tick_ms"),
        "scheduling": str(scheduling_granted(None, ROUTER_PRIORITY)),
        "processors_awake": awake,
        **watch.figures(),
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
    """Run source by source: start everything once, and measure all kinds at the same time."""
    runs: Runs = {}
    repetitions = options.whole("runs")
    for place, (source, routers) in enumerate(SOURCES.items()):
        progress(place / len(SOURCES), f"{source}: starting {routers} routers of each kind")
        with _Kinds(kinds, routers, options) as started:
            for repetition in range(repetitions):
                share = (place + (repetition + 1) / (repetitions + 1)) / len(SOURCES)
                progress(share, f"{source}: repetition {repetition + 1}")
                label = Label("base", source, "", repetition + 1)
                for kind, run in started.measure(options.real("seconds"), label).items():
                    runs.setdefault((source, kind), []).append(run)
    return runs


class _Kinds:
    """All kinds of hop between two ends; their events lie between each other's."""

    def __init__(self, kinds: Sequence[str], routers: int, options: Options) -> None:
        self._kinds, self._routers = kinds, routers
        self._tick_ms, self._folder = options.whole("tick_ms"), options.text("folder")
        self._samples = options.text("samples")
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        tick_s = self._tick_ms / 1e3
        plans = {
            kind: ChainPlan(kind, self._routers, reference_s=tick_s, is_real_time=True)
            for kind in self._kinds
            if kind != CLOUD
        }
        try:
            self._lanes = self._stack.enter_context(Lanes(plans))
            self._cloud = self._start_cloud() if CLOUD in self._kinds else None
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def measure(self, seconds: float, label: Label) -> dict[str, Run]:
        """Run every kind once, in the same seconds."""
        warm_up_s = min(WARM_UP_INTERPRETED_S, seconds)
        cut = Cut(warm_up_s, samples=self._samples, label=label)
        total_s, step_s = seconds + cut.warm_up_s, self._tick_ms / 1e3 / len(self._kinds)
        others = [kind for kind in self._kinds if kind != CLOUD]
        self._lanes.begin(total_s, [(at + 1) * step_s for at in range(len(others))])
        found: dict[str, Run] = {}
        if self._cloud is not None:
            self._cloud.begin(total_s)
            run = self._cloud.finish(cut.of(CLOUD))
            (path,) = run.paths
            found[CLOUD] = Run(path.summary, path.bins, run.local, run.lost, run.broker_cpu_percent)
        for kind, lane in self._lanes.finish(cut).items():
            found[kind] = Run(lane.summary, lane.bins, lane.local, lane.lost)
        return found

    def _start_cloud(self) -> CloudChain:
        rig = self._stack.enter_context(CloudRig(chain(self._routers), folder=self._folder))
        return CloudChain(rig, (self._routers,), tick=(self._tick_ms, 1_000))


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
    """Return the median latency of the cloud by that of as many raw hops, pair by pair."""
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
        Parameter("runs", 5, "repetitions, of all kinds at the same time", least=1),
        Parameter("seconds", 10.0, "measured time of one run, after its warm-up", least=0.01),
        Parameter("tick_ms", 10, "time between two events of the reference", least=1),
        AWAKE,
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
        Parameter("folder", "", "where the cloud's files lie; a temporary one"),
        Parameter("samples", "", "folder for raw samples as Parquet; none are kept without it"),
    ),
    measure=measure,
)
