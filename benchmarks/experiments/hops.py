"""Latency over a chain of 1 … 7 routers (S0 §8.4, S3 §5.2.4): the mean should grow by a constant.

Our routers, raw C forwarders and the Python reference run in turn at every length, so the slopes
belong to the same minutes of the same machine.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan, ChainRun
from benchmarks.experiments.chain_runs import (
    KINDS,
    ChainRuns,
    cpu_text,
    middle_us,
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
)
from benchmarks.experiments.source_figures import (
    NOT_COMPARABLE_S0,
    NOT_COMPARABLE_S3,
    S0_HOPS_INCREMENT_US,
    S0_HOPS_MEAN_US,
    S3_HOPS_MEAN_US,
)
from benchmarks.rig import CORE, FLOOR_SINGLE
from benchmarks.statistics import Line, line_through

if TYPE_CHECKING:
    from collections.abc import Iterator

LOADED_KINDS = (CORE, FLOOR_SINGLE)


def measure(options: Options, progress: Progress) -> Result:
    """Measure every length, load and kind, repetition by repetition."""
    lengths, loads = options.wholes("routers"), options.wholes("loads")
    runs = run_all(_plans(options), options.real("seconds"), progress)
    repetitions = {name: options.whole(name) for name in ("runs", "load_runs")}
    return Result(
        figures={**_figures(runs, loads), **totals(runs), **repetitions},
        title="latency by routers: mean / sd / p50 / p95 / p99 (us); CPU of each router (%)",
        columns=("kind", "load variables", *(f"{length} routers" for length in lengths)),
        table=tuple(_rows(runs, lengths, loads)),
        comparisons=tuple(_comparisons(runs, loads)),
    )


def _plans(options: Options) -> Iterator[ChainPlan]:
    """Yield plans, repetition outermost; kinds of one length are adjacent, in alternating order."""
    kinds = options.names("kinds", known=KINDS)
    for repetition in range(max(options.whole("runs"), options.whole("load_runs"))):
        for load in options.wholes("loads"):
            if repetition >= options.whole("load_runs" if load else "runs"):
                continue
            for length in options.wholes("routers"):
                for kind in kinds if repetition % 2 == 0 else reversed(kinds):
                    if load == 0 or kind in LOADED_KINDS:
                        yield ChainPlan(kind, length, load)


def _medians_us(runs: ChainRuns, kind: str, load: int, *, field: str) -> dict[int, float]:
    return {
        plan.routers: middle_us(kept, field, 3)
        for plan, kept in runs.items()
        if (plan.kind, plan.load_variables) == (kind, load)
    }


def _line(runs: ChainRuns, kind: str, load: int, *, field: str) -> Line | None:
    points = _medians_us(runs, kind, load, field=field)
    if len(points) < 2:
        return None
    return line_through([float(length) for length in points], list(points.values()))


def _figures(runs: ChainRuns, loads: tuple[int, ...]) -> dict[str, Figure]:
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
    return figures


def _rows(
    runs: ChainRuns, lengths: tuple[int, ...], loads: tuple[int, ...]
) -> Iterator[tuple[str, ...]]:
    for load in loads:
        for kind in KINDS:
            cells = [_cell(runs.get(ChainPlan(kind, length, load), [])) for length in lengths]
            if any(cells):
                yield (kind, str(load), *cells)


def _cell(kept: list[ChainRun]) -> str:
    if not kept:
        return ""
    fields = ("mean_us", "sd_us", "p50_us", "p95_us", "p99_us")
    parts = " / ".join(f"{middle_us(kept, field, 0):.0f}" for field in fields)
    return f"{parts}; {cpu_text(kept)}"


def _comparisons(runs: ChainRuns, loads: tuple[int, ...]) -> Iterator[Comparison]:
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
        Parameter("runs", 5, "interleaved repetitions without load", least=1),
        Parameter("load_runs", 1, "interleaved repetitions with load"),
        Parameter("seconds", 2.0, "measured time of one chain, after its warm-up", least=0.01),
        Parameter("routers", "1,2,3,4,5,6,7", "lengths of the chain, by comma", least=1),
        Parameter("loads", "0,40,80,120", "load variables, by comma", least=0),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure,
)
