"""Capacity of one router (S3 §5.2.6): the load grows until events are lost or late.

Every pair publishes each millisecond, so n pairs are n thousand forwards a second, and the first is
the measured reference. Up to 16 pairs, as in the source, each event has its own send; beyond, the
load of a millisecond is one `send_many` with one event a datagram.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.experiments.chain_runs import KINDS
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
    NOT_COMPARABLE_S3,
    S3_THROUGHPUT,
    S3_THROUGHPUT_MEASURED_PER_S,
)
from benchmarks.measurements import OUT, period_ns
from benchmarks.plan import EVENT_BYTES, Exit, Group, RouterPlan, fitting_period
from benchmarks.rig import CORE, Rig, run_watched, warm_up_s
from benchmarks.statistics import Summary

if TYPE_CHECKING:
    from collections.abc import Iterator

TICK_S = 1e-3
ROUND_TICKS = 20
SEPARATE_PAIRS_MAX = 16
KEPT_UP_SHARE = 0.95
LATE_US = 10_000.0
DRAIN_S = 0.3
STEPS = "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,32,64,128,256,512,1024,2048,4096"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of the ramp for one kind of hop."""

    summary: Summary
    cpu_percent: float
    offered_per_s: float
    achieved_per_s: float
    lost: int
    policed: int

    @property
    def is_saturated(self) -> bool:
        """Return whether the hop (or the load's own sender) no longer keeps up."""
        return bool(self.saturated_by)

    @property
    def saturated_by(self) -> str:
        """Return the part of the rig that does not keep up; empty if every part does."""
        if self.lost > 0:
            return "loss"
        if self.summary.mean_us > LATE_US:
            return "latency"
        is_slow = self.achieved_per_s < KEPT_UP_SHARE * self.offered_per_s
        return "the load's sender" if is_slow else ""


Ramp = dict[tuple[str, int], list[Step]]
"""Repetitions of each kind and thousand forwards a second."""


def measure(options: Options, progress: Progress) -> Result:
    """Run the steps kind by kind, dropping a kind once it is saturated."""
    steps, runs = options.wholes("steps"), options.whole("runs")
    kinds = options.names("kinds", known=KINDS)
    ramp: Ramp = {}
    for repetition in range(runs):
        climbing = list(kinds)
        for index, thousands in enumerate(steps):
            done = (repetition * len(steps) + index) / (runs * len(steps))
            for kind in tuple(climbing):
                progress(done, f"{kind}, {thousands} thousand forwards a second")
                step = _run_step(kind, thousands, options.real("seconds"))
                ramp.setdefault((kind, thousands), []).append(step)
                if step.is_saturated:
                    climbing.remove(kind)
    progress(1.0, "done")
    return Result(
        figures={**figures(ramp), "runs": runs},
        title="one router under a growing load: latency of the reference (us), CPU (%)",
        columns=(
            "kind",
            "thousands/s",
            "mean",
            "max",
            "p99",
            "CPU %",
            "achieved/s",
            "lost",
            "saturated by",
        ),
        table=tuple(_rows(ramp)),
        comparisons=tuple(comparisons(ramp)),
    )


def _run_step(kind: str, thousands: int, seconds: float) -> Step:
    pairs = thousands - 1
    warm_up = warm_up_s(kind, seconds)
    total_s = seconds + warm_up
    period = fitting_period(TICK_S * ROUND_TICKS)
    reference = Group(first_id=1, count=ROUND_TICKS, period=period, exits=(Exit(OUT),))
    senders = min(max(1, pairs), SEPARATE_PAIRS_MAX)
    is_separate = pairs < SEPARATE_PAIRS_MAX
    load = Group(
        first_id=1_000,
        count=max(1, pairs) * ROUND_TICKS,
        period=period,
        source=2,
        sources=senders if is_separate else 1,
        exits=(Exit(OUT),),
    )
    with Rig() as rig:
        rig.prepare(kind, publishers=2)
        # The load is counted as unknown, since the router is measured and not this subscriber.
        subscriber = rig.subscriber([reference], ["ring"])
        plan = RouterPlan(
            outlets=(subscriber.outlet(OUT),),
            groups=(reference, load),
            publishers=tuple(range(1, 2 + senders)),
        )
        hop = rig.forwarder(kind, plan)
        publisher = rig.publisher(hop, first_channel=1)
        loader = rig.publisher(hop, senders=senders, first_channel=2)
        if pairs:
            style = "single" if is_separate else "burst"
            loader.begin(_question(style, load, pairs, seconds=total_s))
        answer, window = run_watched(
            publisher,
            _question("single", reference, 1, seconds=total_s),
            watched=[hop.process],
            pages=[],
            warm_up=warm_up,
        )
        loaded = loader.finish(within_s=total_s * 4 + 30.0) if pairs else {"sent": 0, "seconds": 1}
        time.sleep(DRAIN_S)
        taken = subscriber.take(warm_up_s=warm_up)
        unknown = subscriber.process.ask({})["counters"][0]["unknown"]
        sent = int(answer["sent"]) + int(loaded["sent"])
        return Step(
            summary=Summary(**taken["summary"]),
            cpu_percent=100.0 * window.cpu_s[0] / window.seconds,
            offered_per_s=thousands * 1e3,
            achieved_per_s=int(answer["sent"]) / float(answer["seconds"])
            + int(loaded["sent"]) / float(loaded["seconds"]),
            lost=sent - int(taken["taken"]) - int(unknown),
            policed=hop.policed(),
        )


def _question(style: str, group: Group, per_tick: int, *, seconds: float) -> dict[str, object]:
    assert group.period is not None
    return {
        "do": style,
        "first_id": group.first_id,
        "count": group.count,
        "per_tick": per_tick,
        "tick_s": TICK_S,
        "event_bytes": EVENT_BYTES,
        "period_ns": period_ns(group.period),
        "seconds": seconds,
    }


def figures(ramp: Ramp) -> dict[str, Figure]:
    """Return the flat figures; those of a step that was not carried have a mark beside them."""
    found: dict[str, Figure] = {}
    for kind in KINDS:
        prefix = "" if kind == CORE else f"{kind}_"
        for (some_kind, thousands), kept in sorted(ramp.items()):
            if some_kind != kind:
                continue
            name = f"{prefix}k{thousands}"
            found[f"{name}_mean_us"] = middle([step.summary.mean_us for step in kept], 1)
            found[f"{name}_cpu_percent"] = middle([step.cpu_percent for step in kept], 2)
            reason = _saturated_by(kept)
            if reason:
                found[f"{name}_saturated_by"] = reason
            # The steps above the first that was not carried are those of the other runs.
            if f"{prefix}saturated_per_s" in found:
                continue
            if reason:
                found[f"{prefix}saturated_per_s"] = thousands * 1_000
                found[f"{prefix}saturated_lost"] = max(step.lost for step in kept)
                found[f"{prefix}saturated_by"] = reason
            else:
                found[f"{prefix}carried_per_s"] = thousands * 1_000
    found |= _per_router(ramp)
    found["policed"] = sum(
        step.policed for (kind, _), kept in ramp.items() if kind == CORE for step in kept
    )
    return found


def _per_router(ramp: Ramp) -> dict[str, Figure]:
    carried = [
        step
        for (kind, _), kept in ramp.items()
        for step in kept
        if kind == CORE and not step.is_saturated
    ]
    if carried:
        return per_router_figures(max(step.summary.mean_us for step in carried))
    # A machine too busy for the first step has carried nothing: then that step is shown.
    lowest = min(((key, kept) for key, kept in ramp.items() if key[0] == CORE), default=None)
    if lowest is None:
        return {}
    _, kept = lowest
    shown = per_router_figures(max(step.summary.mean_us for step in kept))
    return {**shown, "per_router_saturated_by": _saturated_by(kept)}


def _saturated_by(kept: list[Step]) -> str:
    """Return what gave way in the first repetition that was not carried; empty if all were."""
    return next(filter(None, (step.saturated_by for step in kept)), "")


def _rows(ramp: Ramp) -> Iterator[tuple[str, ...]]:
    for (kind, thousands), kept in sorted(ramp.items(), key=lambda item: item[0]):
        yield (
            kind,
            str(thousands),
            f"{middle([step.summary.mean_us for step in kept]):.1f}",
            f"{max(step.summary.max_us for step in kept):.0f}",
            f"{middle([step.summary.p99_us for step in kept]):.0f}",
            f"{middle([step.cpu_percent for step in kept]):.1f}",
            f"{middle([step.achieved_per_s for step in kept]):,.0f}",
            str(max(step.lost for step in kept)),
            _saturated_by(kept),
        )


def comparisons(ramp: Ramp) -> Iterator[Comparison]:
    """Yield the figures of the source and ours; the reason says if our step was not carried."""
    for (kind, thousands), kept in sorted(ramp.items()):
        if kind == CORE and thousands in S3_THROUGHPUT:
            mean_us, _, cpu_percent = S3_THROUGHPUT[thousands]
            ours_us = middle([step.summary.mean_us for step in kept], 1)
            ours_percent = middle([step.cpu_percent for step in kept], 2)
            name, source, reason = f"k{thousands}", "S3 Fig 5.27", NOT_COMPARABLE_S3
            gave_way = _saturated_by(kept)
            if gave_way:
                reason = f"ours was not carried ({gave_way}); {reason}"
            yield Comparison(f"{name}_mean_us", source, mean_us, ours_us, reason)
            yield Comparison(f"{name}_cpu_percent", source, cpu_percent, ours_percent, reason)
    carried = figures(ramp).get("carried_per_s")
    if isinstance(carried, int):
        theirs = float(S3_THROUGHPUT_MEASURED_PER_S)
        yield Comparison("carried_per_s", "S3 Fig 5.27", theirs, carried, NOT_COMPARABLE_S3)


THROUGHPUT = Experiment(
    name="throughput",
    summary="one router under a growing load, until events are lost or late",
    parameters=(
        Parameter("runs", 1, "interleaved repetitions", least=1),
        Parameter("seconds", 2.0, "measured time of one step, after its warm-up", least=0.01),
        Parameter("steps", STEPS, "thousand forwards a second, by comma, growing", least=1),
        Parameter("kinds", "", f"kinds of hop, by comma: {', '.join(KINDS)}"),
    ),
    measure=measure,
)
