"""One hop: cost of an event, throughput, and latency, beside raw C forwarders in the same run.

Repetition is the outer loop and each cell measures floor and core one after the other, so that a
machine that drifts moves both; figures are medians, ratios are medians of adjacent pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.experiments.experiment import (
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
    per_router_figures,
)
from benchmarks.experiments.saturation import saturate_once
from benchmarks.measurements import (
    FAN_OUT,
    LONE,
    PACKED,
    PACKED_100K,
    PMU_ALIGNED,
    PMU_BURST,
    PMU_SEPARATE,
    REFERENCE_STREAM,
    SINGLE,
    Pace,
    Paced,
    Stream,
    Streamed,
    pace_once,
    stream_once,
)
from benchmarks.rig import CORE, FLOOR_GSO, FLOOR_SINGLE, REFERENCE
from benchmarks.statistics import median_ratio, spread_percent
from benchmarks.veth import NamespaceError, VethPair

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass(slots=True)
class Samples:
    """Measurements of the repetitions, by name, in the order of measuring."""

    seconds: float
    repetition: int = 0
    lost: int = 0
    policed: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def keep(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)

    def account(self, measured: Streamed | Paced) -> None:
        """Count losses and refusals of our own hop; both must be 0."""
        self.lost += measured.lost
        self.policed += measured.policed

    def order(self, floor: str) -> tuple[str, str]:
        """Return floor, then core; the other way round in every second repetition."""
        return (floor, CORE) if self.repetition % 2 == 0 else (CORE, floor)


def _stream_pair(samples: Samples, name: str, stream: Stream) -> None:
    for kind in samples.order(FLOOR_GSO):
        measured = stream_once(kind, stream, samples.seconds)
        who = "core" if kind == CORE else "floor"
        samples.keep(f"{name}.{who}.per_s", measured.events_per_s)
        samples.keep(f"{name}.{who}.cpu_us", measured.cpu_us)
        if kind == CORE:
            samples.account(measured)


def _pace_pair(samples: Samples, name: str, pace: Pace, *, floor: str) -> None:
    for kind in samples.order(floor):
        _keep_paced(samples, name, pace_once(kind, pace, samples.seconds), kind)


def _keep_paced(samples: Samples, name: str, measured: Paced, kind: str) -> None:
    who = "core" if kind == CORE else "floor"
    samples.keep(f"{name}.{who}.p50_us", measured.p50_us)
    samples.keep(f"{name}.{who}.p99_us", measured.p99_us)
    samples.keep(f"{name}.{who}.mean_us", measured.mean_us)
    samples.keep(f"{name}.{who}.cpu_percent", measured.cpu_percent)
    if kind == CORE:
        samples.account(measured)


def _single(samples: Samples) -> None:
    _stream_pair(samples, "single", SINGLE)


def _packed(samples: Samples) -> None:
    _stream_pair(samples, "packed", PACKED)


def _packed100k(samples: Samples) -> None:
    measured = stream_once(CORE, PACKED_100K, samples.seconds)
    samples.keep("packed100k.core.cpu_us", measured.cpu_us)
    samples.keep("packed100k.core.per_s", measured.events_per_s)
    samples.account(measured)


def _lone(samples: Samples) -> None:
    _pace_pair(samples, "lone", LONE, floor=FLOOR_SINGLE)


def _pmu_gso(samples: Samples) -> None:
    _pace_pair(samples, "pmu_gso", PMU_BURST, floor=FLOOR_GSO)


def _pmu_sep(samples: Samples) -> None:
    _pace_pair(samples, "pmu_sep", PMU_SEPARATE, floor=FLOOR_SINGLE)


def _pmu_aligned(samples: Samples) -> None:
    _keep_paced(samples, "pmu_aligned", pace_once(CORE, PMU_ALIGNED, samples.seconds), CORE)


def _fanout(samples: Samples) -> None:
    _stream_pair(samples, "fanout", FAN_OUT)


def _reference(samples: Samples) -> None:
    measured = stream_once(REFERENCE, REFERENCE_STREAM, samples.seconds)
    samples.keep("reference.per_s", measured.events_per_s)
    samples.keep("reference.cpu_us", measured.cpu_us)


def _nooffload(samples: Samples) -> None:
    try:
        with VethPair() as veth:
            measured = stream_once(CORE, PACKED, samples.seconds, ends=veth.ends, hops=veth.hops)
    except NamespaceError as error:
        samples.notes["nooffload_packed_cpu_us"] = f"not measured: {error.args[0]}"
        return
    samples.keep("nooffload.core.cpu_us", measured.cpu_us)
    samples.keep("nooffload.core.per_s", measured.events_per_s)
    samples.account(measured)


def _saturated(samples: Samples) -> None:
    measured = saturate_once(samples.seconds)
    samples.keep("slow.p99_us", measured.slow_p99_us)
    samples.keep("alert.p99_us", measured.alert_p99_us)
    samples.keep("saturated.per_s", measured.load_events_per_s)
    samples.keep("saturated.cpu_percent", measured.cpu_percent)
    samples.lost += measured.lost
    samples.policed += measured.policed


CELLS: dict[str, Callable[[Samples], None]] = {
    "single": _single,
    "packed": _packed,
    "packed100k": _packed100k,
    "lone": _lone,
    "pmu_gso": _pmu_gso,
    "pmu_sep": _pmu_sep,
    "pmu_aligned": _pmu_aligned,
    "fanout": _fanout,
    "reference": _reference,
    "nooffload": _nooffload,
    "saturated": _saturated,
}

DIRECT = (
    ("single_cpu_us", "single.core.cpu_us", 4),
    ("single_events_per_s", "single.core.per_s", 0),
    ("single_floor_cpu_us", "single.floor.cpu_us", 4),
    ("single_floor_events_per_s", "single.floor.per_s", 0),
    ("packed_cpu_us", "packed.core.cpu_us", 4),
    ("packed_events_per_s", "packed.core.per_s", 0),
    ("packed_floor_cpu_us", "packed.floor.cpu_us", 4),
    ("packed_floor_events_per_s", "packed.floor.per_s", 0),
    ("packed100k_cpu_us", "packed100k.core.cpu_us", 4),
    ("packed100k_events_per_s", "packed100k.core.per_s", 0),
    ("lone_p50_us", "lone.core.p50_us", 1),
    ("lone_p99_us", "lone.core.p99_us", 1),
    ("lone_floor_p50_us", "lone.floor.p50_us", 1),
    ("lone_floor_p99_us", "lone.floor.p99_us", 1),
    ("pmu_gso_cpu_percent", "pmu_gso.core.cpu_percent", 2),
    ("pmu_gso_p50_us", "pmu_gso.core.p50_us", 1),
    ("pmu_sep_cpu_percent", "pmu_sep.core.cpu_percent", 2),
    ("pmu_sep_p50_us", "pmu_sep.core.p50_us", 1),
    ("pmu_aligned_p50_us", "pmu_aligned.core.p50_us", 1),
    ("pmu_aligned_p99_us", "pmu_aligned.core.p99_us", 1),
    ("fanout_per_s", "fanout.core.per_s", 0),
    ("fanout_cpu_us", "fanout.core.cpu_us", 4),
    ("fanout_floor_per_s", "fanout.floor.per_s", 0),
    ("reference_events_per_s", "reference.per_s", 0),
    ("nooffload_packed_cpu_us", "nooffload.core.cpu_us", 4),
    ("nooffload_packed_events_per_s", "nooffload.core.per_s", 0),
    ("slow_p99_us", "slow.p99_us", 1),
    ("alert_p99_us", "alert.p99_us", 1),
    ("saturated_events_per_s", "saturated.per_s", 0),
    ("saturated_cpu_percent", "saturated.cpu_percent", 1),
)
"""Figure, name of its samples, digits."""

RATIOS = (
    ("single_ratio_to_floor", "single.core.per_s", "single.floor.per_s"),
    ("lone_ratio_to_floor", "lone.core.p50_us", "lone.floor.p50_us"),
    ("pmu_gso_p50_ratio", "pmu_gso.core.p50_us", "pmu_gso.floor.p50_us"),
    ("pmu_sep_cpu_ratio", "pmu_sep.core.cpu_percent", "pmu_sep.floor.cpu_percent"),
    ("pmu_sep_p50_ratio", "pmu_sep.core.p50_us", "pmu_sep.floor.p50_us"),
)


def measure(options: Options, progress: Progress) -> Result:
    """Run the chosen cells `runs` times, interleaved, and reduce them to figures."""
    runs = options.whole("runs")
    cells = options.names("only", known=tuple(CELLS))
    samples = Samples(seconds=options.real("seconds"))
    for repetition in range(runs):
        samples.repetition = repetition
        for index, cell in enumerate(cells):
            done = (repetition * len(cells) + index) / (runs * len(cells))
            progress(done, f"{cell}, repetition {repetition + 1} of {runs}")
            CELLS[cell](samples)
    progress(1.0, "done")
    return Result(
        figures=_figures(samples, runs),
        title="one hop, medians of interleaved repetitions",
        columns=("figure", "median", "smallest", "largest", "spread %"),
        table=tuple(_rows(samples)),
    )


def _figures(samples: Samples, runs: int) -> dict[str, Figure]:
    figures: dict[str, Figure] = {}
    for figure, name, digits in DIRECT:
        if name in samples.values:
            figures[figure] = middle(samples.values[name], digits)
    for figure, ours, theirs in RATIOS:
        if ours in samples.values and theirs in samples.values:
            ratio = median_ratio(samples.values[ours], samples.values[theirs])
            figures[figure] = round(ratio, 3)
    for name in ("slow", "alert"):
        if f"{name}.p99_us" in samples.values and "lone.core.p99_us" in samples.values:
            lone_p99_us = middle(samples.values["lone.core.p99_us"])
            tail_us = middle(samples.values[f"{name}.p99_us"])
            figures[f"{name}_ratio_to_lone_p99"] = round(tail_us / lone_p99_us, 3)
    if "lone.core.mean_us" in samples.values:
        # An upper bound: the whole way from publisher to subscriber, with one router on it.
        figures |= per_router_figures(middle(samples.values["lone.core.mean_us"]))
    figures |= samples.notes
    figures |= {"policed": samples.policed, "lost": samples.lost, "runs": runs}
    return figures


def _rows(samples: Samples) -> Iterator[tuple[str, ...]]:
    for figure, name, digits in DIRECT:
        if values := samples.values.get(name):
            cells = (middle(values, digits), min(values), max(values))
            spread = f"{spread_percent(values):.0f}"
            yield (figure, *(f"{value:,.{digits}f}" for value in cells), spread)


FORWARDING = Experiment(
    name="forwarding",
    summary="cost, throughput and latency of one hop, beside raw C forwarders",
    parameters=(
        Parameter("runs", 5, "interleaved repetitions", least=1),
        Parameter("seconds", 3.0, "measured time of one cell, after its warm-up", least=0.01),
        Parameter("only", "", f"cells to run, by comma: {', '.join(CELLS)}"),
    ),
    measure=measure,
)
