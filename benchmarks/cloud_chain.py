"""One pair of end-points across a managed chain of routers, with or without load beside it.

The broker grants the path and is idle from then on; the events are those of the public API.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cloud_plan import CLOUD, chain, edge_name
from benchmarks.cloud_rig import CloudRig
from benchmarks.errors import BenchmarkError
from benchmarks.statistics import WARM_UP_S, Bin, Summary
from gridstat.model.latency_model import Hop

if TYPE_CHECKING:
    from benchmarks.cloud_rig import Facts
    from benchmarks.processes import RoleProcess

PUBLISHER, SUBSCRIBER = f"{CLOUD}/publisher", f"{CLOUD}/subscriber"
LOADER, LOADED = f"{CLOUD}/loader", f"{CLOUD}/loaded"
REFERENCE, LOAD = "reference-", "load-"
LOAD_PER_S = 100
LATENCY_MS = 2_000
KEEP_EVENTS = 65_536
ANSWER_S_MAX = 120.0
SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class CloudChainPlan:
    """So many routers, one event of the reference every so often, so many load variables."""

    routers: int
    tick_ms: int = 10
    load_variables: int = 0


@dataclass(frozen=True, slots=True)
class CloudChainRun:
    """What came of it; `hops` is the path as the law of latency sees it."""

    summary: Summary
    bins: tuple[Bin, ...]
    local: tuple[tuple[int, int], ...]
    hops: tuple[Hop, ...]
    predicted_us: int
    lost: int
    broker_cpu_percent: float


def run_cloud_chain(plan: CloudChainPlan, seconds: float, *, folder: str = "") -> CloudChainRun:
    """Start the cloud, have the path granted, and measure for `seconds` after the warm-up."""
    warm_up_s = min(WARM_UP_S, seconds)
    total_s = seconds + warm_up_s
    first, last = edge_name(0), edge_name(plan.routers - 1)
    with CloudRig(chain(plan.routers), folder=folder) as rig:
        publisher = rig.end_points({PUBLISHER: [first]})
        subscriber = rig.end_points({SUBSCRIBER: [last]})
        name = _joined(publisher, subscriber, f"{PUBLISHER}/{REFERENCE}", plan.tick_ms)
        loader = _loaded(rig, plan, first, last)
        rig.await_in_step()
        broker_ns, began_s = rig.broker.cpu_ns(), time.monotonic()
        if loader is not None:
            pulse = {"do": "pulse", "prefix": LOAD, "period_s": 1 / LOAD_PER_S}
            loader.begin({**pulse, "seconds": total_s})
        tick = {"do": "tick", "prefix": REFERENCE, "tick_s": plan.tick_ms / 1e3}
        sent = publisher.ask({**tick, "seconds": total_s}, within_s=total_s + ANSWER_S_MAX)
        broker_s, took_s = (rig.broker.cpu_ns() - broker_ns) / 1e9, time.monotonic() - began_s
        if loader is not None:
            loader.finish(within_s=ANSWER_S_MAX)
        time.sleep(SETTLE_S)
        question = {"do": "take", "warm_up_s": warm_up_s, "bin_us": 100.0}
        taken = subscriber.ask(question, within_s=ANSWER_S_MAX)
        path = rig.explain(name)["subscriptions"][0]["paths"][0]
        return CloudChainRun(
            summary=Summary(**taken["summary"]),
            bins=tuple(Bin(**part) for part in taken["bins"]),
            local=tuple(rig.local_latency(first)),
            hops=hops_of(path, rig.survey()),
            predicted_us=int(path["latency_us"]),
            lost=int(sent["sent"]) - int(taken["taken"]),
            broker_cpu_percent=100.0 * broker_s / took_s,
        )


def _joined(publisher: RoleProcess, subscriber: RoleProcess, prefix: str, tick_ms: int) -> str:
    """One variable, published and subscribed at every tick; its name."""
    owner, _, short = prefix.rpartition("/")
    question = {"do": "publish", "prefix": short, "count": 1, "period": (tick_ms, 1_000)}
    publisher.ask(question, within_s=ANSWER_S_MAX)
    name = f"{owner}/{short}0"
    _subscribe(subscriber, SUBSCRIBER, [name], keep_events=KEEP_EVENTS)
    return name


def _loaded(rig: CloudRig, plan: CloudChainPlan, first: str, last: str) -> RoleProcess | None:
    """The load's own end-points at the same edges; all its variables are due at one instant."""
    if plan.load_variables == 0:
        return None
    loader = rig.end_points({LOADER: [first]})
    loaded = rig.end_points({LOADED: [last]})
    question = {"do": "publish", "prefix": LOAD, "count": plan.load_variables}
    loader.ask({**question, "period": (1, LOAD_PER_S)}, within_s=ANSWER_S_MAX)
    names = [f"{LOADER}/{LOAD}{number}" for number in range(plan.load_variables)]
    _subscribe(loaded, LOADED, names)
    return loader


def _subscribe(
    process: RoleProcess, end_point: str, names: list[str], *, keep_events: int = 0
) -> None:
    answer = process.ask(
        {
            "do": "subscribe",
            "names": {end_point: names},
            "per_request": len(names),
            "outstanding": 1,
            "qos": {"latency_ms": LATENCY_MS},
            "keep_events": keep_events,
        },
        within_s=ANSWER_S_MAX,
    )
    if answer["refused"]:
        raise BenchmarkError(f"a path was refused: {next(iter(answer['refused']))}")


def hops_of(path: Facts, survey: Facts) -> tuple[Hop, ...]:
    """A granted path in the law's words: each router's promised load, each channel's burst.

    As the broker counts it, nothing is charged for the step from the last router to the end-point.
    """
    routers = {router["name"]: router for router in survey["routers"]}
    channels = {channel["channel_id"]: channel for channel in survey["channels"]}
    bursts = [int(channels[number]["burst_events"]) for number in path["channel_ids"]]
    return tuple(
        Hop(events_per_s=float(routers[name]["events_per_s"]), burst_events=burst)
        for name, burst in zip(path["routers"], (*bursts, 0), strict=True)
    )
