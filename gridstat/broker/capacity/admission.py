"""Admission checks: the limits that a subscription would break, where, and by how much.

The checks look at the elements that a claim has changed: bandwidth and queue of channels, capacity
of routers, and the latency of existing contracts. A refusal names the limit that binds.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import ceil
from typing import TYPE_CHECKING, Final, assert_never

from gridstat.broker.capacity.allocation import Refusal
from gridstat.broker.capacity.path_skew import reason
from gridstat.model.errors import (
    BackPressured,
    BurstTooLarge,
    ChannelFull,
    IntervalNotSatisfiable,
    LatencyNotSatisfiable,
    PathTooLong,
    QuotaReached,
    RedundancyNotSatisfiable,
    Refused,
    RouterFull,
    SearchUndecided,
    SkewNotSatisfiable,
)
from gridstat.model.path_label import path_text
from gridstat.model.qos import PATH_ROUTERS_MAX
from gridstat.model.rate_law import MODAL_DIVISORS_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from fractions import Fraction

    from gridstat.broker.capacity.accounts import HopAccount
    from gridstat.broker.capacity.allocation import AllocatedPath, AllocationRequest
    from gridstat.broker.capacity.latency_promises import Element
    from gridstat.broker.capacity.resources import LoadChange, Resources
    from gridstat.model.paths import NotFound
    from gridstat.model.status import StatusVariable


class Limit(Enum):
    """Kind of limit; its value is the error with which a request that breaks it is refused."""

    LATENCY = LatencyNotSatisfiable
    REDUNDANCY = RedundancyNotSatisfiable
    CHANNEL = ChannelFull
    ROUTER = RouterFull
    BURST = BurstTooLarge
    BACK_PRESSURE = BackPressured
    INTERVALS = IntervalNotSatisfiable
    LENGTH = PathTooLong
    SHARE = QuotaReached
    SKEW = SkewNotSatisfiable
    UNDECIDED = SearchUndecided
    """None was shown to be reached: the search for paths ended without a verdict."""


LATENCY_LIMITS: Final = frozenset({Limit.LATENCY, Limit.SKEW})
CAPACITY_LIMITS: Final = (Limit.CHANNEL, Limit.ROUTER, Limit.BURST, Limit.SHARE)


@dataclass(frozen=True, slots=True)
class Obstacle:
    """One limit that a request would break, at one element or (`None`) in the whole cloud."""

    limit: Limit
    element: Element | None
    bottleneck: str
    missing: int
    unit: str
    reason: str

    @property
    def is_topological(self) -> bool:
        """True if the topology alone breaks the limit, at any rate and without other load."""
        return self.element is None and self.limit in {
            Limit.LATENCY,
            Limit.REDUNDANCY,
            Limit.LENGTH,
            Limit.SKEW,
            Limit.UNDECIDED,
        }

    def refusal(self) -> Refusal:
        kind: type[Refused] = self.limit.value
        return Refusal.of(
            kind,
            self.reason,
            bottleneck=self.bottleneck,
            shortfall=f"{self.missing} {self.unit}" if self.unit else "",
        )


def obstacles(
    resources: Resources,
    touched: LoadChange,
    *,
    ignoring: frozenset[Limit] = frozenset(),
    back_pressured: Mapping[int, Fraction] | None = None,
) -> list[Obstacle]:
    """Return every limit that the new claims have broken, in the order of the elements.

    `back_pressured` maps each back-pressured channel that a change may continue to use to the bytes
    a second that it carried before; the change may not add to them.
    """
    found: list[Obstacle] = []
    for element in touched.elements:
        if isinstance(element, str):
            if resources.router(element).is_overloaded:
                found.append(_router_obstacle(resources, element))
        else:
            hop = resources.channel(element)
            if hop.is_overloaded or hop.overflows_queue:
                found.extend(channel_obstacles(hop, element))
            if back_pressured and element in back_pressured:
                found.extend(_back_pressure_obstacles(resources, element, back_pressured[element]))
    if touched.late:
        found.extend(_late_obstacles(resources, touched))
    found += [_divisors_obstacle(name) for name in touched.overfull_rows]
    return [obstacle for obstacle in found if obstacle.limit not in ignoring]


def replay_obstacles(
    resources: Resources, touched: LoadChange, *, ignoring: frozenset[Limit] = frozenset()
) -> list[Obstacle]:
    """Return the routers whose share for replay the claims of a replayed variable exceed."""
    found = [
        replay_obstacle(resources, name)
        for name in touched.elements
        if isinstance(name, str) and resources.router(name).exceeds_replay
    ]
    found += [_divisors_obstacle(name) for name in touched.overfull_rows]
    return [obstacle for obstacle in found if obstacle.limit not in ignoring]


def replay_obstacle(resources: Resources, name: str, more: Fraction | int = 0) -> Obstacle:
    """Return the obstacle of a router that would receive `more` replay than it accepts."""
    account = resources.router(name)
    missing = ceil(account.replays.value + more - account.replays_max)
    return Obstacle(
        Limit.ROUTER,
        name,
        f"router {name}",
        missing,
        "events/s",
        f"router {name} accepts {account.replays_max} events/s of replay, and would receive "
        f"{missing} more; replay more slowly, or replay fewer variables",
    )


def back_pressure(resources: Resources, channel_id: int) -> Obstacle:
    return congested(channel_label(resources, channel_id), channel_id)


def congested(label: str, channel_id: int) -> Obstacle:
    return Obstacle(
        Limit.BACK_PRESSURE,
        channel_id,
        f"channel {label}",
        0,
        "",
        f"channel {label} is congested and admits nothing new for now",
    )


def too_slow(
    resources: Resources, path: AllocatedPath, missing_us: int, skewed: StatusVariable | None = None
) -> Obstacle:
    """Return the obstacle of a path that takes too long; its slowest element is the bottleneck.

    `skewed` is the variable whose copies on it would come too late beside those of other paths.
    """
    elements: list[Element] = [*path.routers, *path.channel_ids]
    slowest = max(elements, key=lambda element: latency_us_of(resources, element))
    label, walk = label_of(resources, slowest), path_text(path.routers, path.channel_names)
    if skewed is not None:
        text = f"the path {walk} is too slow for a second one: {reason(skewed, path.latency_us)}"
        return Obstacle(Limit.SKEW, slowest, label, missing_us, "µs", text)
    text = (
        f"the path {walk} is predicted to take {path.latency_us} µs, "
        f"{missing_us} µs more than allowed"
    )
    return Obstacle(Limit.LATENCY, slowest, label, missing_us, "µs", text)


def not_found(
    answer: NotFound,
    allowed_us: Sequence[int],
    ends_us: int,
    request: AllocationRequest,
    wanted_us: Sequence[int] | None = None,
) -> Obstacle:
    """Return the obstacle for paths that the topology does not offer, whatever the load is.

    `wanted_us` are the latencies that the request allows, where the skew of paths allows less.
    """
    wanted = len(allowed_us)
    ends = f"from {' or '.join(request.sources)} to {' or '.join(request.targets)}"
    match answer.reason:
        case "latency":
            takes_us = answer.latency_us_best + ends_us
            missing_us = max(1, takes_us - allowed_us[answer.path_index])
            if wanted_us is not None and takes_us <= wanted_us[answer.path_index]:
                why = reason(request.variable, takes_us)
                text = f"of {_paths(wanted)} {ends} one is too slow for a second one: {why}"
                return Obstacle(Limit.SKEW, None, ends, missing_us, "µs", text)
            text = f"{_paths(wanted)} {ends} take {takes_us} µs at best, {missing_us} µs too much"
            return Obstacle(Limit.LATENCY, None, ends, missing_us, "µs", text)
        case "budget":
            return Obstacle(Limit.UNDECIDED, None, ends, 0, "", undecided(wanted, ends))
        case "length":
            missing = answer.routers - PATH_ROUTERS_MAX
            text = (
                f"{_paths(wanted)} {ends} would cross up to {answer.routers} routers, and a "
                f"contract allows {PATH_ROUTERS_MAX} a path"
            )
            return Obstacle(Limit.LENGTH, None, ends, missing, "routers", text)
        case "disconnected" | "disjoint":
            missing = max(1, wanted - answer.paths_max)
            text = f"{wanted} disjoint paths {ends} are requested, and {answer.paths_max} exist"
            unit = "path" if missing == 1 else "paths"
            return Obstacle(Limit.REDUNDANCY, None, ends, missing, unit, text)
        case _:
            assert_never(answer.reason)


def undecided(wanted: int, ends: str) -> str:
    """Return the words of a refusal for paths of which a search has shown nothing in its time."""
    return (
        f"the search for {_paths(wanted)} {ends} reached its time limit without a result; "
        "ask for fewer paths, or allow more latency"
    )


def latency_us_of(resources: Resources, element: Element) -> int:
    if isinstance(element, str):
        return resources.router(element).latency_us
    return resources.channel(element).latency_us


def label_of(resources: Resources, element: Element) -> str:
    if isinstance(element, str):
        return f"router {element}"
    return f"channel {channel_label(resources, element)}"


def _paths(wanted: int) -> str:
    return "the path" if wanted == 1 else f"{wanted} disjoint paths"


def channel_label(resources: Resources, channel_id: int) -> str:
    channel = resources.channel(channel_id).channel
    assert channel is not None
    return channel.label


def _router_obstacle(resources: Resources, name: str) -> Obstacle:
    account = resources.router(name)
    missing = ceil(account.shortfall())
    return Obstacle(
        Limit.ROUTER,
        name,
        f"router {name}",
        missing,
        "events/s",
        f"router {name} has no capacity left: {missing} of the "
        f"{account.router.events_per_s_max} events/s that it accepts are missing",
    )


def channel_obstacles(hop: HopAccount, channel_id: int) -> Iterable[Obstacle]:
    """Yield the broken limits of a channel: its bandwidth and its queue."""
    if hop.channel is None:
        return
    label = hop.channel.label
    if hop.is_overloaded:
        missing = ceil(hop.shortfall())
        yield Obstacle(
            Limit.CHANNEL,
            channel_id,
            f"channel {label}",
            missing,
            "bytes/s",
            f"channel {label} is full: {missing} of its "
            f"{hop.channel.bandwidth_bytes_per_s} bytes/s are missing; "
            f"{ceil(hop.probe_charge.value)} bytes/s of them are for probes",
        )
    if hop.overflows_queue:
        missing = hop.burst.events - hop.channel.queue_events_max
        yield Obstacle(
            Limit.BURST,
            channel_id,
            f"channel {label}",
            missing,
            "events",
            f"{hop.burst.events} events may arrive at channel {label} at one instant, but its "
            f"queue holds {hop.channel.queue_events_max}",
        )


def _back_pressure_obstacles(
    resources: Resources, channel_id: int, before: Fraction
) -> Iterable[Obstacle]:
    if resources.channel(channel_id).bytes.value > before:
        yield back_pressure(resources, channel_id)


def _divisors_obstacle(variable: str) -> Obstacle:
    return Obstacle(
        Limit.INTERVALS,
        None,
        f"variable {variable}",
        1,
        "interval",
        f"{variable} would be sent at more different intervals than the {MODAL_DIVISORS_MAX} "
        "that a router keeps for a variable; request an interval that others use",
    )


def _late_obstacles(resources: Resources, touched: LoadChange) -> Iterable[Obstacle]:
    """Yield an obstacle for each older contract that the load makes late, as if it were full."""
    for element, key in touched.late:
        is_router = isinstance(element, str)
        label = label_of(resources, element)
        missing = resources.promises.late_us(key)
        yield Obstacle(
            Limit.ROUTER if is_router else Limit.BURST,
            element,
            label,
            missing,
            "µs",
            f"more load on {label} would make subscription {key.subscription_id}, "
            f"which is granted already, late by {missing} µs",
        )
