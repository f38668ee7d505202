"""A publisher and subscribers along a managed chain of routers, with or without load beside them.

The broker grants the paths and is idle from then on; the events are those of the public API. The
cloud is started once, and sends on request.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.cloud_plan import CLOUD, edge_name
from benchmarks.errors import BenchmarkError
from benchmarks.roles.pacing import reached
from benchmarks.statistics import NS_PER_S, Bin, Histogram, Summary, histogram_since
from gridstat.model.latency_model import Hop

if TYPE_CHECKING:
    from benchmarks.cloud_rig import CloudRig, Facts
    from benchmarks.lanes import Cut
    from benchmarks.processes import RoleProcess

PUBLISHER, LOADER, LOADED = f"{CLOUD}/publisher", f"{CLOUD}/loader", f"{CLOUD}/loaded"
REFERENCE, LOAD = "reference-", "load-"
LOAD_PER_S = 100
LATENCY_MS = 2_000
KEEP_EVENTS = 65_536
ANSWER_S_MAX = 120.0
SETTLE_S = 0.3


@dataclass(frozen=True, slots=True)
class ChainPath:
    """One path of a run; `hops` is the path as the law of latency sees it."""

    summary: Summary
    bins: tuple[Bin, ...]
    hops: tuple[Hop, ...]
    predicted_us: int


@dataclass(frozen=True, slots=True)
class CloudChainRun:
    """Result of a run, the shortest path first; `local` is the first router's own share."""

    paths: tuple[ChainPath, ...]
    local: Histogram
    lost: int
    broker_cpu_percent: float


class CloudChain:
    """End-points on a running chain: one publisher at its first edge, a subscriber at each exit.

    The publisher sends one event a tick, for each exit in turn. Load variables, if any, are all due
    at the same instant, which is also that of a tick: the reference is in the middle of its burst.
    """

    def __init__(self, rig: CloudRig, exits: tuple[int, ...], *, tick: tuple[int, int]) -> None:
        """Attach the end-points; an exit is a number of routers, a tick a fraction of 1 s."""
        self._rig = rig
        self._exits = exits
        self._tick_s = tick[0] / tick[1]
        self._publisher = rig.end_points({PUBLISHER: [edge_name(0)]})
        ends = {_subscriber(routers): [edge_name(routers - 1)] for routers in exits}
        self._subscribers = rig.end_points(ends)
        publish = {"do": "publish", "prefix": REFERENCE, "count": len(exits)}
        period = {"period": (tick[0] * len(exits), tick[1])}
        step = {"own_step_ns": round(self._tick_s * NS_PER_S)} if len(exits) > 1 else {}
        self._publisher.ask({**publish, **period, **step}, within_s=ANSWER_S_MAX)
        names = {_subscriber(routers): [_variable(number)] for number, routers in enumerate(exits)}
        _subscribe(self._subscribers, names, keep_events=KEEP_EVENTS)
        self._loading: tuple[RoleProcess, RoleProcess] | None = None
        self._load = 0
        rig.await_in_step()

    def set_load(self, variables: int) -> None:
        """Replace the load by so many variables from the first edge to the last exit."""
        if self._load:
            loader, loaded = self._loaders()
            loaded.ask({"do": "unsubscribe"}, within_s=ANSWER_S_MAX)
            loader.ask({"do": "unpublish", "prefix": LOAD}, within_s=ANSWER_S_MAX)
        if variables:
            loader, loaded = self._loaders()
            question = {"do": "publish", "prefix": LOAD, "count": variables}
            loader.ask({**question, "period": (1, LOAD_PER_S)}, within_s=ANSWER_S_MAX)
            _subscribe(
                loaded, {LOADED: [f"{LOADER}/{LOAD}{number}" for number in range(variables)]}
            )
        self._load = variables
        self._rig.await_in_step()

    def begin(self, seconds: float) -> None:
        """Send for so long."""
        self._seconds, self._began_s = seconds, time.monotonic()
        self._broker_ns = self._rig.broker.cpu_ns()
        self._local = tuple(self._rig.local_latency(edge_name(0)))
        if self._load:
            pulse = {"do": "pulse", "prefix": LOAD, "period_s": 1 / LOAD_PER_S}
            self._loaders()[0].begin({**pulse, "seconds": seconds})
        tick = {"do": "tick", "prefix": REFERENCE, "tick_s": self._tick_s}
        self._publisher.begin({**tick, "seconds": seconds})

    def finish(self, cut: Cut) -> CloudChainRun:
        """Return the result since `begin`."""
        sent = self._publisher.finish(within_s=self._seconds + ANSWER_S_MAX)
        broker_s = (self._rig.broker.cpu_ns() - self._broker_ns) / 1e9
        took_s = time.monotonic() - self._began_s
        if self._load:
            self._loaders()[0].finish(within_s=ANSWER_S_MAX)
        time.sleep(SETTLE_S)
        # Events that may still arrive under the contract are not lost.
        reached(self._arrived, int(sent["sent"]), stall_s=LATENCY_MS / 1_000)
        survey, taken, paths = self._rig.survey(), 0, []
        for number, routers in enumerate(self._exits):
            question = {"do": "take", "bin_us": 100.0, "end_point": _subscriber(routers)}
            answer = self._subscribers.ask({**question, **cut.question()}, within_s=ANSWER_S_MAX)
            taken += int(answer["taken"])
            path = self._path(number)
            paths.append(
                ChainPath(
                    summary=Summary(**answer["summary"]),
                    bins=tuple(Bin(**part) for part in answer["bins"]),
                    hops=hops_of(path, survey),
                    predicted_us=int(path["latency_us"]),
                )
            )
        local = tuple(self._rig.local_latency(edge_name(0)))
        return CloudChainRun(
            paths=tuple(paths),
            local=histogram_since(self._local, local),
            lost=int(sent["sent"]) - taken,
            broker_cpu_percent=100.0 * broker_s / took_s,
        )

    def lengths(self) -> tuple[int, ...]:
        """Return the number of routers on each path."""
        return tuple(len(self._path(number)["routers"]) for number in range(len(self._exits)))

    def _arrived(self) -> int:
        """Return the number of events of this run that the subscribers hold."""
        return int(self._subscribers.ask({"do": "arrived"}, within_s=ANSWER_S_MAX)["arrived"])

    def _path(self, number: int) -> Facts:
        path: Facts = self._rig.explain(_variable(number))["subscriptions"][0]["paths"][0]
        return path

    def _loaders(self) -> tuple[RoleProcess, RoleProcess]:
        """Return the load's own end-points; start them on the first call."""
        if self._loading is None:
            last = edge_name(self._exits[-1] - 1)
            self._loading = (
                self._rig.end_points({LOADER: [edge_name(0)]}),
                self._rig.end_points({LOADED: [last]}),
            )
        return self._loading


def _subscriber(routers: int) -> str:
    return f"{CLOUD}/subscriber-{routers}"


def _variable(number: int) -> str:
    return f"{PUBLISHER}/{REFERENCE}{number}"


def _subscribe(process: RoleProcess, names: dict[str, list[str]], *, keep_events: int = 0) -> None:
    answer = process.ask(
        {
            "do": "subscribe",
            "names": names,
            "per_request": max(map(len, names.values())),
            "outstanding": 1,
            "qos": {"latency_ms": LATENCY_MS},
            "keep_events": keep_events,
        },
        within_s=ANSWER_S_MAX,
    )
    if answer["refused"]:
        raise BenchmarkError(f"a path was refused: {next(iter(answer['refused']))}")


def hops_of(path: Facts, survey: Facts) -> tuple[Hop, ...]:
    """Return a granted path for the law: each router's promised load, each channel's burst.

    Like the broker, it charges nothing for the step from the last router to the end-point.
    """
    routers = {router["name"]: router for router in survey["routers"]}
    channels = {channel["channel_id"]: channel for channel in survey["channels"]}
    bursts = [int(channels[number]["burst_events"]) for number in path["channel_ids"]]
    return tuple(
        Hop(events_per_s=float(routers[name]["events_per_s"]), burst_events=burst)
        for name, burst in zip(path["routers"], (*bursts, 0), strict=True)
    )
