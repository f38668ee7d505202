"""The law of latency, fitted on a broker's clouds: routers in a row under load, and two rings.

Chains of managed routers show what a router, its load and a burst cost; a cloud of twenty shows
that it holds for paths which share routers. The law that contracts are granted by is the fit,
raised so that it keeps 19 of 20 of the measurements (S0 A29). `measurements` holds them all, so
that the fit can be done again from a kept result.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cloud_chain import CloudChainPlan, run_cloud_chain
from benchmarks.cloud_plan import two_rings
from benchmarks.cloud_rig import CloudRig
from benchmarks.experiments.experiment import (
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.path_latencies import PathProbe, kept_share, prediction_error
from benchmarks.subscribing import Subscribers
from gridstat.model.latency_model import (
    LATENCY_MODEL_DEFAULT,
    Hop,
    LatencyModel,
    Measurement,
    fit,
    raised,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

KEPT_SHARE = 0.95
TICK_MS = 10
RINGS_LONGER = 3
"""Their events come 30 times a second instead of 100, and a p99 wants as many."""

Cell = tuple[int, float, int]
"""What a path shows to the law: routers, and over all of them events a second and burst events."""

Cells = dict[Cell, list[float]]
"""The p99 of each run, by cell."""


def measure(options: Options, progress: Progress) -> Result:
    """Repetition outermost: each chain under each load, then the rings."""
    load = os.getloadavg()[0]
    cells: Cells = {}
    chains = [
        CloudChainPlan(routers, TICK_MS, variables)
        for variables in options.wholes("loads")
        for routers in options.wholes("routers")
    ]
    runs = options.whole("runs")
    for repetition in range(runs):
        for index, plan in enumerate(chains):
            share = (repetition + index / (len(chains) + 1)) / runs
            progress(share, f"{plan.routers} routers in a row, {plan.load_variables} loading")
            seconds, folder = options.real("seconds"), options.text("folder")
            found = run_cloud_chain(plan, seconds, folder=folder)
            cells.setdefault(cell_of(found.hops), []).append(found.summary.p99_us)
        if options.whole("edges"):
            progress((repetition + 0.9) / runs, "two rings of routers")
            _add_rings(cells, options)
    progress(1.0, "done")
    model = law_of(cells)
    figures: dict[str, Figure] = {
        **_figures("fit", model, cells),
        **_figures("default", LATENCY_MODEL_DEFAULT, cells),
        "model": model_text(model),
        "measurements": measurements_text(cells),
        "machine_load_before": round(load, 2),
        "runs": runs,
    }
    return Result(
        figures=figures,
        title="p99 of a path (us)",
        columns=("routers", "events/s", "burst events", "measured", "fit", "default"),
        table=tuple(_rows(cells, model)),
    )


def _add_rings(cells: Cells, options: Options) -> None:
    edges = options.whole("edges")
    topology = two_rings(edges, max(1, edges // 2))
    with CloudRig(topology, folder=options.text("folder")) as rig:
        ends = Subscribers(rig, clients=edges, processes=2)
        for path in PathProbe(rig, ends).run(RINGS_LONGER * options.real("seconds")):
            cells.setdefault(cell_of(path.hops), []).append(path.p99_us)


# From measurements to a law.


def law_of(cells: Mapping[Cell, Sequence[float]]) -> LatencyModel:
    """Fitted on the middle of each cell, so that no stall of the machine decides; then raised."""
    typical = [Measurement(hops_in(cell), median(p99s_us)) for cell, p99s_us in cells.items()]
    model, _ = fit(typical)
    return raised(model, single_measurements(cells), KEPT_SHARE)


def single_measurements(cells: Mapping[Cell, Sequence[float]]) -> list[Measurement]:
    return [
        Measurement(hops_in(cell), p99_us) for cell, p99s_us in cells.items() for p99_us in p99s_us
    ]


def cell_of(hops: Sequence[Hop]) -> Cell:
    """The law is linear, so the sums over a path are all that it sees."""
    return (
        len(hops),
        round(sum(hop.events_per_s for hop in hops), 1),
        sum(hop.burst_events for hop in hops),
    )


def hops_in(cell: Cell) -> tuple[Hop, ...]:
    """A path that shows the same to the law."""
    routers, events_per_s, burst_events = cell
    return (Hop(events_per_s, burst_events), *(Hop() for _ in range(routers - 1)))


def measurements_text(cells: Mapping[Cell, Sequence[float]]) -> str:
    """`routers:events/s:burst events:p99,p99,…` for each cell, in one line of a result."""
    return " ".join(
        ":".join((*map(str, cell), ",".join(f"{p99_us:.1f}" for p99_us in p99s_us)))
        for cell, p99s_us in sorted(cells.items())
    )


def measurements_in(text: str) -> Cells:
    """What `measurements_text` told."""
    cells: Cells = {}
    for word in text.split():
        routers, events_per_s, burst_events, p99s_us = word.split(":")
        cell = (int(routers), float(events_per_s), int(burst_events))
        cells[cell] = [float(p99_us) for p99_us in p99s_us.split(",")]
    return cells


def model_text(model: LatencyModel) -> str:
    """As it stands in `gridstat/model/latency_model.py`."""
    return ", ".join(f"{name}={value:.3g}" for name, value in asdict(model).items())


# What it is worth.


def _figures(prefix: str, model: LatencyModel, cells: Cells) -> dict[str, Figure]:
    pairs = [(float(model.predict(one.hops)), one.latency_us) for one in single_measurements(cells)]
    return {
        **{f"{prefix}_{name}": round(value, 3) for name, value in asdict(model).items()},
        f"{prefix}_prediction_error_p50": round(prediction_error(pairs), 3),
        f"{prefix}_predictions_kept": round(kept_share(pairs), 3),
    }


def _rows(cells: Cells, model: LatencyModel) -> Iterator[tuple[str, ...]]:
    for cell, p99s_us in sorted(cells.items()):
        hops = hops_in(cell)
        yield (
            str(cell[0]),
            f"{cell[1]:,.0f}",
            str(cell[2]),
            f"{median(p99s_us):,.0f}",
            f"{model.predict(hops):,}",
            f"{LATENCY_MODEL_DEFAULT.predict(hops):,}",
        )


LATENCY_LAW = Experiment(
    name="latency-law",
    summary="the law that contracts are granted by, fitted on managed clouds",
    parameters=(
        Parameter("runs", 3, "repetitions of everything"),
        Parameter("seconds", 10.0, "measured time of one cloud, after its warm-up"),
        Parameter("routers", "1,2,3,4,5", "lengths of the chain, by comma"),
        Parameter("loads", "0,30,100", "load variables, 100 a second each, by comma"),
        Parameter("edges", 10, "edge routers around two rings; 0 leaves the rings out"),
        Parameter("folder", "", "where the clouds' files lie; a temporary one"),
    ),
    measure=measure,
)
