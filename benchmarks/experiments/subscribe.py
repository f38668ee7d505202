"""Subscriptions a second into a real cloud: from the client's call to every router's confirmation.

Broker and 20 routers are separate daemons; clients use the public API over TLS and sign their
requests; the journal is on a disk and waits for it. The predictions that contracts are granted by
are compared with events that are really sent.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.allocation import allocation_times_ms
from benchmarks.class_latencies import class_figures
from benchmarks.cloud_plan import two_rings
from benchmarks.cloud_rig import CloudRig, routers_behind
from benchmarks.errors import BenchmarkError
from benchmarks.experiments.experiment import (
    AWAKE,
    Bound,
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
    middle,
)
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.path_latencies import (
    LATENCY_MS,
    PREDICTED,
    PathProbe,
    kept_share,
    prediction_error,
)
from benchmarks.statistics import median_ratio
from benchmarks.storm_stream import StormStream
from benchmarks.subscribing import Asked, Storm, Subscribers, quantile
from benchmarks.versions import AGAINST, PAIRS, compared

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SLOW, LONE = (1, 1), "lone-"
AGAINST_SETTINGS: Final[dict[str, Figure]] = {
    "runs": 1,
    "subscriptions": 4_000,
    "lone": 100,
    "stream": 0.5,
    "seconds": 1.0,
    "allocations": 500,
}
"""Settings beside another checkout: storms and lone requests, and as little else as possible."""
AGAINST_COSTS: Final = {
    "subscription": "1/subscriptions_per_s",
    "broker_cpu": "broker_cpu_ms",
    "lone": "lone_ms_p50",
    "allocate": "allocate_ms_p50",
}
"""Costs that are compared with another checkout: names of ratios, and their figures."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the broker and of all routers together, in KiB."""

    broker_kib: int
    routers_kib: int


def measure(options: Options, progress: Progress) -> Result:
    """Measure storms of single and of many subscriptions, then lone ones, then real events."""
    watch = MachineWatch()
    edges = options.whole("clients")
    topology = two_rings(edges, options.whole("ring"))
    progress(0.0, f"starting a cloud of {len(topology.routers)} routers")
    with CloudRig(topology, folder=options.text("folder")) as rig:
        progress(0.1, "attaching end-points")
        ends = Subscribers(rig, clients=edges, processes=options.whole("processes"))
        runs = _storms(rig, ends, options, progress)
        ends.unsubscribe()
        with processors_awake(is_wanted=bool(options.whole("awake"))) as awake:
            runs.figures |= _stream(rig, ends, runs, options, progress)
            runs.figures |= _lone(ends, options, progress)
            ends.unsubscribe()
            runs.figures |= _predictions(rig, ends, options, progress)
            progress(0.88, "every class of application")
            seconds = options.real("seconds") / 2
            runs.figures |= class_figures(rig, edges=edges, seconds=seconds)
        runs.figures["processors_awake"] = awake
        runs.figures["routers_in_step"] = _routers_in_step(rig)
        runs.figures["fsync_ms_p50"] = round(rig.survey()["journal"]["fsync_ms_p50"], 3)
        runs.figures["fsync_ms_p99"] = round(rig.survey()["journal"]["fsync_ms_p99"], 3)
        runs.figures["journal_on"] = _filesystem(rig.folder)
    runs.figures |= _allocations(options, progress)
    bounds: tuple[Bound, ...] = ()
    if options.text("against"):
        compared_figures, bounds = compared(
            "subscribe",
            options.text("against"),
            AGAINST_SETTINGS | {"clients": edges, "ring": options.whole("ring")},
            AGAINST_COSTS,
            options.whole("against_pairs"),
            lambda done, what: progress(0.99 + 0.01 * done, what),
        )
        runs.figures |= compared_figures
    progress(1.0, "done")
    figures: dict[str, Figure] = {
        **runs.figures,
        "routers": len(topology.routers),
        "clients": edges,
        "client_processes": options.whole("processes"),
        "outstanding": options.whole("outstanding"),
        **watch.figures(),
        "runs": options.whole("runs"),
    }
    return Result(
        figures=figures,
        title=f"subscriptions into a cloud of {len(topology.routers)} routers",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in figures.items()),
        bounds=bounds,
    )


@dataclass(slots=True)
class _Runs:
    figures: dict[str, Figure]
    names: dict[str, list[str]]
    asked: Asked


def _storms(rig: CloudRig, ends: Subscribers, options: Options, progress: Progress) -> _Runs:
    """Run storms of one and of many variables a request in turn; unsubscribe all between them."""
    repetitions, many = options.whole("runs"), options.whole("many")
    of_each = max(1, options.whole("subscriptions") // len(ends.clients) // len(ends.publishers))
    names = ends.shifted(ends.publish("v", of_each, SLOW))
    qos = {"latency_ms": LATENCY_MS, "redundancy": options.whole("redundancy")}
    asked = Asked(1, options.whole("outstanding"), qos)
    singles: list[Storm] = []
    manies: list[Storm] = []
    before, held = _memory(rig), _memory(rig)
    for repetition in range(repetitions):
        share = 0.15 + 0.55 * repetition / repetitions
        for kept, per_request in ((manies, many), (singles, 1)):
            progress(share, f"repetition {repetition + 1}: {per_request} variables a request")
            if repetition or kept is singles:
                ends.unsubscribe()
            kept.append(ends.storm(names, replace(asked, per_request=per_request)))
            rig.await_in_step()
            if repetition == 0 and kept is manies:
                held = _memory(rig)
    return _Runs(
        {
            **_storm_figures(singles, manies),
            "broker_kib_each": _each(held.broker_kib - before.broker_kib, manies[0]),
            "routers_kib_each": _each(held.routers_kib - before.routers_kib, manies[0]),
            "digests_equal_after_storms": _routers_in_step(rig),
        },
        names,
        asked,
    )


def _storm_figures(singles: Sequence[Storm], manies: Sequence[Storm]) -> dict[str, Figure]:
    storms = (*singles, *manies)
    reasons = sorted({reason for storm in storms for reason in storm.reasons})
    figures: dict[str, Figure] = {
        "subscriptions_per_s": middle([storm.per_s for storm in singles], 1),
        "subscriptions_per_s_best": round(max(storm.per_s for storm in singles), 1),
        "many_subscriptions_per_s": middle([storm.per_s for storm in manies], 1),
        "subscriptions": singles[0].granted,
        "subscription_failures": sum(storm.failed for storm in storms),
        "grant_ms_p50": middle([quantile(storm.took_ms, 0.50) for storm in singles], 2),
        "grant_ms_p99": middle([quantile(storm.took_ms, 0.99) for storm in singles], 2),
        "requests_per_commit": middle([storm.requests_per_commit for storm in singles], 2),
    }
    for prefix, kept in (("", singles), ("many_", manies)):
        for who in ("broker", "router", "client"):
            each_ms = [storm.each_ms(getattr(storm, f"{who}_cpu_s")) for storm in kept]
            figures[f"{prefix}{who}_cpu_ms"] = middle(each_ms, 4)
    if reasons:
        figures["failure"] = reasons[0]
    return figures


def _lone(ends: Subscribers, options: Options, progress: Progress) -> dict[str, Figure]:
    """Measure one client that asks for one variable at a time, while the cloud holds all others."""
    progress(0.72, "lone subscriptions")
    each = max(1, options.whole("lone") // len(ends.publishers))
    names = ends.publish(LONE, each, SLOW)
    asked = Asked(per_request=1, outstanding=1, qos={"latency_ms": LATENCY_MS})
    storm = ends.storm({ends.clients[0]: names}, asked)
    if storm.failed:
        raise BenchmarkError(f"a lone subscription failed: {storm.reasons[0]}")
    return {
        "lone_ms_p50": round(quantile(storm.took_ms, 0.50), 2),
        "lone_ms_p99": round(quantile(storm.took_ms, 0.99), 2),
    }


def _stream(
    rig: CloudRig, ends: Subscribers, runs: _Runs, options: Options, progress: Progress
) -> dict[str, Figure]:
    """Run one more storm beside a stream that was admitted before; its contracts stay."""
    progress(0.68, "a stream, and a storm beside it")
    stream = StormStream(rig, to_edge=options.whole("clients") // 2)
    return stream.measure(lambda: ends.storm(runs.names, runs.asked), options.real("stream"))


def _predictions(
    rig: CloudRig, ends: Subscribers, options: Options, progress: Progress
) -> dict[str, Figure]:
    """Compare the law's prediction of a path with its events and with as many raw C hops."""
    seconds = options.real("seconds")
    progress(0.8, f"sending events for {seconds:g} s")
    watch = MachineWatch()
    taken = PathProbe(rig, ends).run(seconds)
    pairs = [(float(path.predicted_us), float(getattr(path.summary, PREDICTED))) for path in taken]
    within = sum(path.summary.p99_us <= 1e3 * LATENCY_MS for path in taken)
    figures: dict[str, Figure] = {
        "predicted": PREDICTED.removesuffix("_us"),
        "prediction_error_p50": round(prediction_error(pairs), 3),
        "predictions_kept": round(kept_share(pairs), 3),
        "predicted_us_p50": round(median(path.predicted_us for path in taken)),
        "predicted_paths": len(pairs),
        "paths_within_bound": f"{within} of {len(taken)}",
        "prediction_steal_percent": watch.figures()["steal_percent"],
        "routers_real_time": _real_time(rig),
    }
    for field in ("p50_us", "p90_us", "p99_us"):
        ours = [float(getattr(path.summary, field)) for path in taken]
        floor = [float(getattr(path.floor, field)) for path in taken]
        figures[f"measured_{field}_p50"] = round(median(ours))
        figures[f"floor_{field}_p50"] = round(median(floor))
        name = f"latency_ratio_to_floor_{field.removesuffix('_us')}"
        figures[name] = round(median_ratio(ours, floor), 3)
    figures["measured_p99_us_max"] = round(max(path.summary.p99_us for path in taken))
    return figures


def _real_time(rig: CloudRig) -> str:
    """Return how many routers have a real-time forwarding thread, as `20 of 20`."""
    routers = rig.survey()["routers"]
    real_time = [router for router in routers if router["counters"].get("fifo_priority")]
    return f"{len(real_time)} of {len(routers)}"


def _allocations(options: Options, progress: Progress) -> dict[str, Figure]:
    routers, count = options.whole("allocation_routers"), options.whole("allocations")
    progress(0.92, f"{count} allocations in clouds of {routers} routers")
    took_ms, granted = allocation_times_ms(routers, count, redundancy=2)
    return {
        "allocate_ms_p50": round(quantile(took_ms, 0.50), 4),
        "allocate_ms_p99": round(quantile(took_ms, 0.99), 4),
        "allocations": len(took_ms),
        "allocations_granted": granted,
    }


def _routers_in_step(rig: CloudRig) -> str:
    """Return how many routers have confirmed the digest of the wanted table, as `20 of 20`."""
    rig.await_in_step()
    survey = rig.survey()
    equal = [
        router for router in survey["routers"] if router["digest"] == router["confirmed_digest"]
    ]
    assert not routers_behind(survey)
    return f"{len(equal)} of {len(survey['routers'])}"


def _memory(rig: CloudRig) -> Memory:
    return Memory(rig.broker.rss_kib(), sum(router.rss_kib() for router in rig.routers.values()))


def _each(kib: int, storm: Storm) -> float:
    return round(kib / max(1, storm.granted), 3)


def _filesystem(folder: Path) -> str:
    """Return the file system of the journal; in memory an fsync costs nothing."""
    command = ["stat", "--file-system", "--format=%T", str(folder)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


SUBSCRIBE = Experiment(
    name="subscribe",
    summary="subscriptions a second into a cloud of 20 routers, from call to confirmation",
    parameters=(
        Parameter("runs", 3, "repetitions, one and many variables a request in turn", least=1),
        Parameter("subscriptions", 10_000, "subscriptions of one storm, over all clients", least=1),
        Parameter(
            "clients", 10, "clients, each an end-point at an edge router of its own", least=1
        ),
        Parameter("ring", 5, "inner routers in each of the two rings", least=1),
        Parameter("processes", 2, "processes that the clients share", least=1),
        Parameter("outstanding", 64, "requests that each client keeps under way", least=1),
        Parameter("redundancy", 1, "disjoint paths of each subscription in the storms", least=1),
        Parameter("many", 100, "variables a request in the storms of many", least=1),
        Parameter("lone", 200, "subscriptions asked for one at a time", least=1),
        Parameter(
            "stream", 8.0, "time of a stream before a storm, and at most beside one", least=0.01
        ),
        Parameter("seconds", 20.0, "time of real events for the predictions", least=0.01),
        AWAKE,
        Parameter("allocations", 3_000, "allocations in one large cloud of each family", least=1),
        Parameter("allocation_routers", 200, "routers of such a cloud", least=3),
        Parameter("folder", "", "where the cloud's files and journal lie; a temporary one"),
        AGAINST,
        PAIRS,
    ),
    measure=measure,
)
