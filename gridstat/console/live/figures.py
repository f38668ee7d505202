"""Two observations of a grid become figures: what happened between them, and in all.

Counters only grow, so a rate is a difference; where one has fallen, its process was started again
and the difference counts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gridstat.console.grid import router_key
from gridstat.console.processes.supervisor import PMUS, SUBSCRIBERS

if TYPE_CHECKING:
    from gridstat.console.grid import Grid, Subscriber
    from gridstat.console.processes.lines import Line
    from gridstat.console.processes.supervisor import Observation

Histogram = Sequence[tuple[int, int]]
"""(upper bound in ns, count) pairs, ascending."""

ROUTER_DROPS: Final = (
    "malformed_short",
    "malformed_version",
    "malformed_epoch",
    "malformed_length",
    "malformed_option",
    "unknown_channel",
    "unknown_variable",
    "policed_port",
    "policed_source",
    "policed_stamp",
    "policed_slot",
    "policed_jump",
    "policed_interval",
    "duplicate",
)
KERNEL_DROPPED: Final = "kernel_dropped"
CHANNEL_DROPS: Final = ("queue_full", "pool_empty", "send_failed")
RECEIVER_DROPS: Final = ("malformed", "unknown", "policed_jump", "ring_full")
NS_PER_US: Final = 1_000


@dataclass(frozen=True, slots=True)
class Latency:
    """In microseconds; None while nothing was measured."""

    us_p50: float | None
    us_p99: float | None


@dataclass(frozen=True, slots=True)
class RouterFigures:
    """One router: rates of the last moments, totals since its start."""

    name: str
    in_per_s: float
    out_per_s: float
    events_in: int
    events_out: int
    not_due: int
    queued: int
    drops: Mapping[str, int]
    latency: Latency


@dataclass(frozen=True, slots=True)
class SubscriberFigures:
    """One subscriber; `expected_per_s` is what its subscription promises."""

    name: str
    every: int
    expected_per_s: float
    got_per_s: float
    delivered: int
    lost: int
    misplaced: int
    duplicates: int
    drops: Mapping[str, int]
    latency: Latency


@dataclass(frozen=True, slots=True)
class PmuFigures:
    """One PMU and what it measured last."""

    name: str
    per_s: float
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GridFigures:
    """Everything that is shown at one moment; who is silent (being started again) is missing."""

    running_s: float
    routers: tuple[RouterFigures, ...]
    subscribers: tuple[SubscriberFigures, ...]
    pmus: tuple[PmuFigures, ...]


def grid_figures(
    grid: Grid, older: Observation, newer: Observation, *, started_s: float
) -> GridFigures:
    span_s = max(newer.time_s - older.time_s, 1e-9)
    subscribers = _parts(newer, SUBSCRIBERS, "subscribers")
    subscribers_before = _parts(older, SUBSCRIBERS, "subscribers")
    pmus = _parts(newer, PMUS, "pmus")
    return GridFigures(
        running_s=newer.time_s - started_s,
        routers=tuple(
            _router_figures(name, older.reports.get(key), newer.reports[key], span_s=span_s)
            for name in (router.name for router in grid.routers)
            if (key := router_key(name)) in newer.reports
        ),
        subscribers=tuple(
            _subscriber_figures(
                grid,
                subscriber,
                before=subscribers_before.get(subscriber.name),
                now=subscribers[subscriber.name],
                span_s=span_s,
            )
            for subscriber in grid.subscribers
            if subscriber.name in subscribers
        ),
        pmus=tuple(
            PmuFigures(
                pmu.name,
                per_s=pmu.period.per_seconds / pmu.period.seconds,
                values=pmus[pmu.name]["values"],
            )
            for pmu in grid.pmus
            if pmu.name in pmus
        ),
    )


def quantile_us(histogram: Histogram, share: float) -> float | None:
    """The upper bound of the bucket in which this share of all lies."""
    total = sum(count for _, count in histogram)
    if total == 0:
        return None
    seen = 0
    for upper_ns, count in histogram:
        seen += count
        if seen >= share * total:
            return upper_ns / NS_PER_US
    return None


def since(older: Histogram, newer: Histogram) -> Histogram:
    """What was added to a histogram; all of it, where it was begun anew."""
    before = dict(older)
    added = [(upper_ns, count - before.get(upper_ns, 0)) for upper_ns, count in newer]
    return newer if any(count < 0 for _, count in added) else added


def nominal_per_s(grid: Grid, subscriber: Subscriber) -> float:
    """What a subscription promises: its share of every variable that it names."""
    return sum(
        pmu.period.per_seconds / pmu.period.seconds / subscriber.every
        for pmu in grid.pmus
        for name in pmu.variable_names()
        if subscriber.wants(name)
    )


def channel_total(report: Line, counter: str) -> int:
    """A counter of a router's channels, over all of them."""
    return sum(channel[counter] for channel in report["channels"].values())


def _router_figures(name: str, before: Line | None, now: Line, *, span_s: float) -> RouterFigures:
    counters = now["counters"]
    events_out = channel_total(now, "sent")
    # The kernel's drops never came in: they are shown, but are not in the router's books.
    drops = {reason: counters[reason] for reason in (*ROUTER_DROPS, KERNEL_DROPPED)}
    drops |= {reason: channel_total(now, reason) for reason in CHANNEL_DROPS}
    return RouterFigures(
        name=name,
        in_per_s=_grown(before["counters"]["in"] if before else 0, counters["in"]) / span_s,
        out_per_s=_grown(channel_total(before, "sent") if before else 0, events_out) / span_s,
        events_in=counters["in"],
        events_out=events_out,
        not_due=counters["not_due"],
        queued=channel_total(now, "queued"),
        drops={reason: count for reason, count in drops.items() if count},
        latency=_latency(before, now),
    )


def _subscriber_figures(
    grid: Grid,
    subscriber: Subscriber,
    *,
    before: Line | None,
    now: Line,
    span_s: float,
) -> SubscriberFigures:
    delivered_before = before["delivered"] if before else 0
    return SubscriberFigures(
        name=subscriber.name,
        every=subscriber.every,
        expected_per_s=nominal_per_s(grid, subscriber),
        got_per_s=_grown(delivered_before, now["delivered"]) / span_s,
        delivered=now["delivered"],
        lost=now["lost"],
        misplaced=now["misplaced"],
        duplicates=now["duplicate"],
        drops={reason: now[reason] for reason in RECEIVER_DROPS if now[reason]},
        latency=_latency(before, now),
    )


def _latency(before: Line | None, now: Line) -> Latency:
    recent = since(before["latency"] if before else (), now["latency"])
    return Latency(quantile_us(recent, 0.5), quantile_us(recent, 0.99))


def _parts(observation: Observation, process: str, key: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = observation.reports.get(process, {}).get(key, {})
    return found


def _grown(before: int, now: int) -> int:
    return now - before if now >= before else now
