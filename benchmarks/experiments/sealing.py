"""Cost of sealing one hop, by both libraries, beside the same hop without sealed channels.

All channels of a run are sealed or none is: the hop opens what the publisher has sealed and seals
what the subscriber opens. Runs are interleaved, each sealed one beside an unsealed one; figures are
medians of pairs. Lone events of both kinds are sent in the same seconds. A missed bound fails the
run; a library that the machine does not have is named, and its bounds are not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import cycle
from statistics import median
from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan
from benchmarks.experiments.experiment import (
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
)
from benchmarks.lanes import Cut, Lanes
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.measurements import PACKED, SINGLE, Stream, stream_once
from benchmarks.micro.core_program import run_core_program
from benchmarks.plan import WIDE_EVENT_BYTES
from benchmarks.rig import CORE
from benchmarks.sealed_channels import EVP, IPSEC_MB, NONE, backends_here
from benchmarks.statistics import median_ratio
from benchmarks.veth import NamespaceError, VethPair
from gridstat.core._core import seal_backends
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NS_PER_US = 1_000
REJECTED = 4_000_000
LONE_TICK_S = 2e-3
LONE_WARM_UP_S = 0.2

BOUNDS = {
    IPSEC_MB: {
        "packed_ratio": 1.20,
        "single_added_ns": 70.0,
        "lone_ratio": 1.05,
        "reject_ns": 60.0,
    },
    EVP: {"packed_ratio": 1.50, "single_added_ns": 300.0, "lone_ratio": 1.05, "reject_ns": 250.0},
}
"""Upper bounds by library: of the processor time an event, of latency, and of a forged datagram."""


@dataclass(slots=True)
class Samples:
    """Measurements by name, those of a pair at the same place."""

    seconds: float
    backends: tuple[str, ...]
    lost: int = 0
    policed: int = 0
    values: dict[str, list[float]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def keep(self, name: str, value: float) -> None:
        self.values.setdefault(name, []).append(value)


def _stream(samples: Samples, name: str, stream: Stream, *, is_odd: bool) -> None:
    """Measure each library in a pair with a run that is not sealed, in turns of order."""
    for backend in samples.backends:
        pair = (NONE, backend) if is_odd else (backend, NONE)
        for seal in pair:
            measured = stream_once(CORE, stream, samples.seconds, seal=seal)
            who = "sealed" if seal else "plain"
            samples.keep(f"{name}.{backend}.{who}", NS_PER_US * measured.cpu_us)
            samples.lost += measured.lost
            samples.policed += measured.policed


def _streams(samples: Samples, runs: int, progress: Callable[[float, str], None]) -> None:
    is_odd = cycle((True, False))
    for run in range(runs):
        progress(run / runs, f"streams, repetition {run + 1} of {runs}")
        order = next(is_odd)
        _stream(samples, "packed", PACKED, is_odd=order)
        _stream(samples, "single", SINGLE, is_odd=order)
        _wire(samples, is_odd=order)


def _wire(samples: Samples, *, is_odd: bool) -> None:
    """Measure packed events where every datagram is a packet, if the machine allows namespaces."""
    try:
        for backend in samples.backends:
            pair = (NONE, backend) if is_odd else (backend, NONE)
            for seal in pair:
                with VethPair() as veth:
                    measured = stream_once(
                        CORE, PACKED, samples.seconds, ends=veth.ends, hops=veth.hops, seal=seal
                    )
                who = "sealed" if seal else "plain"
                samples.keep(f"wire.{backend}.{who}", NS_PER_US * measured.cpu_us)
                samples.lost += measured.lost
    except NamespaceError as error:
        samples.notes["wire"] = f"not measured: {error.args[0]}"


def _lone(samples: Samples, pairs: int, progress: Callable[[float, str], None]) -> None:
    """Send lone events through a sealed and an unsealed hop in the same seconds."""
    for place, backend in enumerate(samples.backends):
        plans = {
            who: ChainPlan(CORE, 1, reference_s=LONE_TICK_S, is_real_time=True, seal=seal)
            for who, seal in (("plain", NONE), ("sealed", backend))
        }
        with Lanes(plans) as lanes:
            for pair in range(pairs):
                share = (place + pair / pairs) / len(samples.backends)
                progress(share, f"lone events by {backend}, pair {pair + 1} of {pairs}")
                # The one that comes first after the tick may find a processor that sleeps.
                phases_s = (0.25, 0.75) if pair % 2 == 0 else (0.75, 0.25)
                lanes.begin(samples.seconds + LONE_WARM_UP_S, [at * LONE_TICK_S for at in phases_s])
                for who, run in lanes.finish(Cut(LONE_WARM_UP_S)).items():
                    samples.keep(f"lone.{backend}.{who}", run.summary.p50_us)
                    samples.lost += run.lost


def _reject(samples: Samples) -> None:
    for backend in samples.backends:
        found = run_core_program(
            "rejected_datagrams", backend, str(WIDE_EVENT_BYTES), str(REJECTED)
        )
        samples.keep(f"reject.{backend}", float(found))


def measure(options: Options, progress: Progress) -> Result:
    """Measure every library that the machine has."""
    chosen = options.names("backends", known=tuple(BOUNDS))
    here = tuple(name for name in backends_here() if name in chosen)
    if not here:
        raise LayoutError(
            f"this machine has none of {', '.join(chosen)}",
            hint="Debian: apt-get install libipsec-mb-dev",
        )
    watch = MachineWatch()
    cells = options.names("only", known=("streams", "lone", "reject"))
    samples = Samples(options.real("seconds"), here)
    with processors_awake() as awake:
        if "reject" in cells:
            progress(0.0, "forged datagrams")
            _reject(samples)
        if "streams" in cells:
            _streams(samples, options.whole("runs"), lambda at, text: progress(at / 2, text))
        if "lone" in cells:
            _lone(samples, options.whole("pairs"), lambda at, text: progress(0.5 + at / 2, text))
    progress(1.0, "done")
    figures = dict(_figures(samples))
    bounds = [
        Bound(name, value, BOUNDS[backend][kind])
        for backend in here
        for kind in BOUNDS[backend]
        if isinstance(value := figures.get(name := f"{backend.replace('-', '_')}_{kind}"), float)
    ]
    names = seal_backends()
    figures |= {
        **{f"{name.replace('-', '_')}_library": names.get(name) or "absent" for name in BOUNDS},
        **samples.notes,
        "lost": samples.lost,
        "policed": samples.policed,
        "runs": options.whole("runs"),
        "lone_pairs": options.whole("pairs"),
        "processors_awake": awake,
        **watch.figures(),
    }
    bounds.append(Bound("lost", samples.lost, 0))
    return Result(
        figures=figures,
        title="one hop with all channels sealed, beside one with none",
        columns=("figure", "measured", "at most", "met"),
        table=tuple(
            (bound.figure, f"{bound.value:,.3f}", f"{bound.at_most:g}", bound.met)
            for bound in bounds
        ),
        bounds=tuple(bounds),
    )


def _figures(samples: Samples) -> Iterator[tuple[str, Figure]]:
    for backend in samples.backends:
        prefix = backend.replace("-", "_")
        for cell in ("packed", "single", "wire"):
            sealed = samples.values.get(f"{cell}.{backend}.sealed")
            plain = samples.values.get(f"{cell}.{backend}.plain")
            if sealed and plain:
                added = median(one - other for one, other in zip(sealed, plain, strict=True))
                yield f"{prefix}_{cell}_cpu_ns", middle(sealed, 1)
                yield f"{prefix}_{cell}_plain_cpu_ns", middle(plain, 1)
                yield f"{prefix}_{cell}_ratio", round(median_ratio(sealed, plain), 3)
                yield f"{prefix}_{cell}_added_ns", round(added, 1)
        sealed_us = samples.values.get(f"lone.{backend}.sealed")
        plain_us = samples.values.get(f"lone.{backend}.plain")
        if sealed_us and plain_us:
            yield f"{prefix}_lone_p50_us", middle(sealed_us, 2)
            yield f"{prefix}_lone_plain_p50_us", middle(plain_us, 2)
            yield f"{prefix}_lone_ratio", round(median_ratio(sealed_us, plain_us), 3)
        if rejected := samples.values.get(f"reject.{backend}"):
            yield f"{prefix}_reject_ns", middle(rejected, 1)


SEALING = Experiment(
    name="sealing",
    summary="cost of sealed channels by both libraries, beside channels that are not sealed",
    parameters=(
        Parameter("runs", 9, "interleaved pairs of streams", least=1),
        Parameter("pairs", 20, "pairs of lone events", least=1),
        Parameter("seconds", 1.5, "measured time of one cell, after its warm-up", least=0.01),
        Parameter("only", "", "cells to run, by comma: streams, lone, reject"),
        Parameter("backends", "", f"libraries, by comma: {', '.join(BOUNDS)}; those of here"),
    ),
    measure=measure,
)
