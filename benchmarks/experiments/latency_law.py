"""The law of latency, fitted on a broker's clouds: edges in a row under load, and two rings.

One chain shows the costs of a router, its load and a burst, on paths of every length in the same
seconds; a cloud of twenty shows that the law holds for paths which share routers. The law that
contracts are granted by is the fit of the quantile it predicts, raised so that it keeps 19 of 20 of
the measurements (S0 A29). As many raw C hops beside each path show the machine's part.
`measurements` holds the fitted values, so that the fit can be done again from a kept result.
"""

from __future__ import annotations

from dataclasses import asdict, astuple
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.cloud_chain import CloudChain
from benchmarks.cloud_plan import line, two_rings
from benchmarks.cloud_rig import CloudRig
from benchmarks.experiments.experiment import (
    AWAKE,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.lanes import Cut, floor_lanes
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.path_latencies import PREDICTED, PathProbe, kept_share, prediction_error
from benchmarks.statistics import WARM_UP_S, Summary
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
    from collections.abc import Iterable, Iterator, Mapping, Sequence

KEPT_SHARE = 0.95
TICK_MS = 10
QUANTILES = ("p50_us", "p90_us", "p95_us", "p99_us")

ONE_ROUTER = LatencyModel(
    ends_us=55.0, hop_us=86.0, us_per_1000_events_per_s=1.07, us_per_burst_event=1.36
)
"""Figures of one router between plain ends (`results/forwarding.json`).

30,000 events a second in and as many out add 64 µs (p50 57 to 121), and 1,000 at one instant raise
the p99 to 1,499 µs.
"""

Cell = tuple[int, float, int]
"""Path as the law sees it: routers, and over all of them events a second and burst events."""

Cells = dict[Cell, list[float]]
"""Latencies of the runs of each cell."""

Taken = list[tuple[Cell, Summary]]
Floors = dict[int, list[Summary]]
"""Summaries of raw hops, by their number in a row."""


def measure(options: Options, progress: Progress) -> Result:
    """Measure a chain under each load, then the rings; start each cloud once."""
    watch = MachineWatch()
    floors: Floors = {}
    with processors_awake(is_wanted=bool(options.whole("awake"))) as awake:
        taken = _along_a_chain(floors, options, progress)
        if options.whole("edges"):
            taken += _around_rings(floors, options, progress)
    progress(1.0, "done")
    cells = cells_of(taken, PREDICTED)
    model = law_of(cells)
    figures: dict[str, Figure] = {
        **_figures("fit", model, cells),
        **_figures("default", LATENCY_MODEL_DEFAULT, cells),
        "fit_raised_by": round(sum(astuple(raised_fit_of(cells))) / sum(astuple(fit_of(cells))), 3),
        **_spreads(taken),
        **_machine_figures(taken, floors),
        "predicted": PREDICTED.removesuffix("_us"),
        "model": model_text(model),
        "measurements": measurements_text(cells),
        "processors_awake": awake,
        **watch.figures(),
        "runs": options.whole("runs"),
    }
    return Result(
        figures=figures,
        title=f"{PREDICTED.removesuffix('_us')} of a path (us)",
        columns=("routers", "events/s", "burst events", "measured", "fit", "default"),
        table=tuple(_rows(cells, model)),
    )


def _along_a_chain(floors: Floors, options: Options, progress: Progress) -> Taken:
    """Measure a chain under each load, repetition outermost; without load beside raw hops."""
    exits, loads, runs = options.wholes("routers"), options.wholes("loads"), options.whole("runs")
    cut = Cut(warm_up_s=WARM_UP_S)
    total_s = options.real("seconds") + cut.warm_up_s
    tick_s = TICK_MS / 1e3
    taken: Taken = []
    progress(0.0, f"starting {max(exits)} routers in a row, and raw hops beside them")
    with (
        floor_lanes(exits, tick_s * len(exits)) as lanes,
        CloudRig(line(max(exits)), folder=options.text("folder")) as rig,
    ):
        along = CloudChain(rig, exits, tick=(TICK_MS, 1_000))
        steps = [(repetition, load) for repetition in range(runs) for load in loads]
        for index, (repetition, load) in enumerate(steps):
            share = 0.1 + 0.6 * index / len(steps)
            progress(share, f"repetition {repetition + 1}: {load} loading")
            along.set_load(load)
            if not load:
                lanes.begin(total_s, [(at + 0.5) * tick_s for at in range(len(exits))])
            along.begin(total_s)
            taken += [(cell_of(path.hops), path.summary) for path in along.finish(cut).paths]
            if not load:
                for hops, run in lanes.finish(cut).items():
                    floors.setdefault(hops, []).append(run.summary)
    return taken


def _around_rings(floors: Floors, options: Options, progress: Progress) -> Taken:
    edges, runs, taken = options.whole("edges"), options.whole("runs"), Taken()
    progress(0.7, "starting two rings of routers")
    with CloudRig(two_rings(edges, max(1, edges // 2)), folder=options.text("folder")) as rig:
        probe = PathProbe(rig, Subscribers(rig, clients=edges, processes=2))
        for repetition in range(runs):
            progress(0.8 + 0.2 * repetition / runs, f"rings, repetition {repetition + 1}")
            paths = probe.run(options.real("seconds"))
            taken += [(cell_of(path.hops), path.summary) for path in paths]
            for hops, floor in {len(path.hops): path.floor for path in paths}.items():
                floors.setdefault(hops, []).append(floor)
    return taken


# Fit of the law.


def cells_of(taken: Iterable[tuple[Cell, Summary]], quantile: str) -> Cells:
    cells: Cells = {}
    for cell, summary in taken:
        cells.setdefault(cell, []).append(float(getattr(summary, quantile)))
    return cells


def law_of(cells: Mapping[Cell, Sequence[float]]) -> LatencyModel:
    """Return the raised fit of the median runs, so that no stall of the machine decides.

    No part is below that of one router: a chain on two processors shows no thousand events at one
    instant, and a refit must not grant contracts that the former law refuses.
    """
    parts = zip(astuple(raised_fit_of(cells)), astuple(ONE_ROUTER), strict=True)
    return LatencyModel(*(max(found, least) for found, least in parts))


def raised_fit_of(cells: Mapping[Cell, Sequence[float]]) -> LatencyModel:
    return raised(fit_of(cells), single_measurements(cells), KEPT_SHARE)


def fit_of(cells: Mapping[Cell, Sequence[float]]) -> LatencyModel:
    """Return the least-squares fit over the median of each cell."""
    typical = [Measurement(hops_in(cell), median(runs_us)) for cell, runs_us in cells.items()]
    return fit(typical, ONE_ROUTER)[0]


def single_measurements(cells: Mapping[Cell, Sequence[float]]) -> list[Measurement]:
    return [
        Measurement(hops_in(cell), run_us) for cell, runs_us in cells.items() for run_us in runs_us
    ]


def cell_of(hops: Sequence[Hop]) -> Cell:
    """Return the sums over a path, since the law is linear."""
    return (
        len(hops),
        round(sum(hop.events_per_s for hop in hops), 1),
        sum(hop.burst_events for hop in hops),
    )


def hops_in(cell: Cell) -> tuple[Hop, ...]:
    """Return a path that is equal to the cell for the law."""
    routers, events_per_s, burst_events = cell
    return (Hop(events_per_s, burst_events), *(Hop() for _ in range(routers - 1)))


def measurements_text(cells: Mapping[Cell, Sequence[float]]) -> str:
    """Return `routers:events/s:burst events:run,run,…` of each cell, in one line of a result."""
    return " ".join(
        ":".join((*map(str, cell), ",".join(f"{run_us:.1f}" for run_us in runs_us)))
        for cell, runs_us in sorted(cells.items())
    )


def measurements_in(text: str) -> Cells:
    """Parse the text of `measurements_text`."""
    cells: Cells = {}
    for part in text.split():
        routers, events_per_s, burst_events, runs_us = part.split(":")
        cell = (int(routers), float(events_per_s), int(burst_events))
        cells[cell] = [float(run_us) for run_us in runs_us.split(",")]
    return cells


def model_text(model: LatencyModel) -> str:
    """Return the model as `gridstat/model/latency_model.py` writes it."""
    return ", ".join(f"{name}={value:.3g}" for name, value in asdict(model).items())


# Quality of the fit.


def _figures(prefix: str, model: LatencyModel, cells: Cells) -> dict[str, Figure]:
    pairs = [(float(model.predict(one.hops)), one.latency_us) for one in single_measurements(cells)]
    return {
        **{f"{prefix}_{name}": round(value, 3) for name, value in asdict(model).items()},
        f"{prefix}_prediction_error_p50": round(prediction_error(pairs), 3),
        f"{prefix}_predictions_kept": round(kept_share(pairs), 3),
    }


def _spreads(taken: Taken) -> dict[str, Figure]:
    """Return the spread of the runs of a cell by quantile, to choose one for this machine."""
    figures: dict[str, Figure] = {}
    for quantile in QUANTILES:
        kept = [runs_us for runs_us in cells_of(taken, quantile).values() if len(runs_us) > 1]
        ratios = [max(runs_us) / min(runs_us) for runs_us in kept if min(runs_us) > 0]
        if ratios:
            figures[f"{quantile.removesuffix('_us')}_worst_by_best"] = round(median(ratios), 2)
    return figures


def _machine_figures(taken: Taken, floors: Floors) -> dict[str, Figure]:
    """Return figures of paths without load beside as many raw hops of the same seconds."""
    figures: dict[str, Figure] = {}
    for hops, floor in sorted(floors.items()):
        idle = min(cell[1:] for cell, _ in taken if cell[0] == hops)
        ours = [summary for cell, summary in taken if cell == (hops, *idle)]
        for quantile in QUANTILES:
            name = f"routers{hops}_{quantile}"
            figures[name] = round(median(getattr(one, quantile) for one in ours))
            figures[f"floor_{name}"] = round(median(getattr(one, quantile) for one in floor))
    return figures


def _rows(cells: Cells, model: LatencyModel) -> Iterator[tuple[str, ...]]:
    for cell, runs_us in sorted(cells.items()):
        hops = hops_in(cell)
        yield (
            str(cell[0]),
            f"{cell[1]:,.0f}",
            str(cell[2]),
            f"{median(runs_us):,.0f}",
            f"{model.predict(hops):,}",
            f"{LATENCY_MODEL_DEFAULT.predict(hops):,}",
        )


LATENCY_LAW = Experiment(
    name="latency-law",
    summary="the law that contracts are granted by, fitted on managed clouds",
    parameters=(
        Parameter("runs", 3, "repetitions of everything", least=1),
        Parameter("seconds", 12.0, "measured time of one run, after its warm-up", least=0.01),
        Parameter("routers", "1,2,3,4,5", "lengths of the paths, by comma", least=1),
        Parameter("loads", "0,30,100", "load variables, 100 a second each, by comma", least=0),
        Parameter("edges", 10, "edge routers around two rings; 0 leaves the rings out"),
        AWAKE,
        Parameter("folder", "", "where the clouds' files lie; a temporary one"),
    ),
    measure=measure,
)
