"""Latency over a chain of 1 … 7 routers (S0 §8.4, S3 §5.2.4): the mean should grow by a constant.

Our routers, raw C forwarders and the Python reference run in turn at every length, so the slopes
belong to the same minutes of the same machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan, ChainRun, run_chain
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
    S0_HOPS_INCREMENT_US,
    S0_HOPS_MEAN_US,
    S3_HOPS_MEAN_US,
)
from benchmarks.rig import CORE, FLOOR_GSO, FLOOR_SINGLE, REFERENCE
from benchmarks.statistics import Line, line_through

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = (CORE, FLOOR_SINGLE, FLOOR_GSO, REFERENCE)
LOADED_KINDS = (CORE, FLOOR_SINGLE)

Runs = dict[tuple[str, int, int], list[ChainRun]]
"""(kind, load variables, routers) -> its repetitions."""


def measure(options: Options, progress: Progress) -> Result:
    """Every length, load and kind, repetition by repetition."""
    lengths, loads = options.wholes("routers"), options.wholes("loads")
    runs: Runs = {}
    steps = list(_steps(options, lengths, loads))
    for index, plan in enumerate(steps):
        name = f"{plan.kind}, {plan.routers} routers, {plan.load_variables} load variables"
        progress(index / len(steps), name)
        key = (plan.kind, plan.load_variables, plan.routers)
        runs.setdefault(key, []).append(run_chain(plan, options.real("seconds")))
    progress(1.0, "done")
    figures = _figures(runs, lengths, loads)
    figures |= {"runs": options.whole("runs"), "load_runs": options.whole("load_runs")}
    return Result(
        figures=figures,
        title="latency by routers and load: mean / sd / p50 / p95 / p99 (us), CPU per router (%)",
        columns=("kind", "load variables", *(f"{length} routers" for length in lengths)),
        table=tuple(_rows(runs, lengths, loads)),
        comparisons=tuple(_comparisons(runs, loads)),
    )


def _steps(
    options: Options, lengths: tuple[int, ...], loads: tuple[int, ...]
) -> Iterator[ChainPlan]:
    """Repetition outermost; the kinds of one length next to each other."""
    kinds = options.names("kinds", known=KINDS)
    for repetition in range(max(options.whole("runs"), options.whole("load_runs"))):
        for load in loads:
            if repetition >= options.whole("load_runs" if load else "runs"):
                continue
            for length in lengths:
                for kind in kinds:
                    if load == 0 or kind in LOADED_KINDS:
                        yield ChainPlan(kind, length, load)


def _medians_us(runs: Runs, kind: str, load: int, *, field: str) -> dict[int, float]:
    return {
        length: middle([getattr(run.summary, field) for run in repetitions])
        for (some_kind, some_load, length), repetitions in sorted(runs.items())
        if (some_kind, some_load) == (kind, load)
    }


def _line(runs: Runs, kind: str, load: int, *, field: str) -> Line | None:
    points = _medians_us(runs, kind, load, field=field)
    if len(points) < 2:
        return None
    return line_through([float(length) for length in points], list(points.values()))


def _figures(runs: Runs, lengths: tuple[int, ...], loads: tuple[int, ...]) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for kind in KINDS:
        line = _line(runs, kind, 0, field="p50_us")
        if line is not None:
            prefix = "" if kind == CORE else f"{kind}_"
            figures[f"{prefix}slope_us"] = round(line.slope, 3)
            figures[f"{prefix}r2"] = round(line.r2, 4)
    ours, floor = figures.get("slope_us"), figures.get("single_slope_us")
    if isinstance(ours, float) and isinstance(floor, float) and floor:
        figures["slope_ratio"] = round(ours / floor, 3)
    for load in loads:
        line = _line(runs, CORE, load, field="mean_us")
        if line is not None:
            figures[f"load{load}_mean_slope_us"] = round(line.slope, 3)
            figures[f"load{load}_mean_r2"] = round(line.r2, 4)
        for length, mean_us in _medians_us(runs, CORE, load, field="mean_us").items():
            figures[f"load{load}_routers{length}_mean_us"] = round(mean_us, 1)
    figures |= _per_router(runs, lengths, loads)
    ours_runs = [run for (kind, _, _), kept in runs.items() if kind == CORE for run in kept]
    figures["lost"] = sum(run.lost for run in ours_runs)
    figures["policed"] = sum(run.policed for run in ours_runs)
    return figures


def _per_router(runs: Runs, lengths: tuple[int, ...], loads: tuple[int, ...]) -> dict[str, Figure]:
    """The worst whole-chain mean divided by its routers: an upper bound of one router's share."""
    shares = [
        mean_us / length
        for load in loads
        for length, mean_us in _medians_us(runs, CORE, load, field="mean_us").items()
        if length in lengths
    ]
    return per_router_figures(max(shares)) if shares else {}


def _rows(
    runs: Runs, lengths: tuple[int, ...], loads: tuple[int, ...]
) -> Iterator[tuple[str, ...]]:
    for load in loads:
        for kind in KINDS:
            if any((kind, load, length) in runs for length in lengths):
                cells = [_cell(runs.get((kind, load, length), [])) for length in lengths]
                yield (kind, str(load), *cells)


def _cell(repetitions: list[ChainRun]) -> str:
    if not repetitions:
        return "-"
    fields = ("mean_us", "sd_us", "p50_us", "p95_us", "p99_us")
    parts = [middle([getattr(run.summary, field) for run in repetitions], 0) for field in fields]
    cpu = middle([sum(run.cpu_percent) / len(run.cpu_percent) for run in repetitions], 1)
    return " / ".join(f"{part:.0f}" for part in parts) + f", {cpu:.1f} %"


def _comparisons(runs: Runs, loads: tuple[int, ...]) -> Iterator[Comparison]:
    for load in loads:
        means = _medians_us(runs, CORE, load, field="mean_us")
        for source, table, reason in (
            ("S0 Tab 8.12", S0_HOPS_MEAN_US, NOT_COMPARABLE_S0),
            ("S3 Fig 5.18", S3_HOPS_MEAN_US, NOT_COMPARABLE_S3),
        ):
            for length, theirs in enumerate(table.get(load, ()), start=1):
                if length in means:
                    name = f"load{load}_routers{length}_mean_us"
                    yield Comparison(name, source, float(theirs), means[length], reason)
        line = _line(runs, CORE, load, field="mean_us")
        if line is not None and load in S0_HOPS_INCREMENT_US:
            increment_us = float(S0_HOPS_INCREMENT_US[load])
            name, source = f"load{load}_mean_slope_us", "S0 Tab 8.14"
            yield Comparison(name, source, increment_us, line.slope, NOT_COMPARABLE_S0)


HOPS = Experiment(
    name="hops",
    summary="latency over a chain of 1 to 7 routers, beside chains of raw C forwarders",
    parameters=(
        Parameter("runs", 5, "interleaved repetitions without load"),
        Parameter("load_runs", 1, "interleaved repetitions with load"),
        Parameter("seconds", 2.0, "measured time of one chain, after its warm-up"),
        Parameter("routers", "1,2,3,4,5,6,7", "lengths of the chain, by comma"),
        Parameter("loads", "0,40,80,120", "load variables, by comma"),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure,
)
