"""A chain of hops under the sources' load: one reference pair, two load publishers.

Hop i sends everything on to hop i + 1; the last feeds the subscriber of the reference and of all
load. With multicast every earlier hop also feeds its own load subscriber (S0 §8.5), and the
first `halved` load subscribers take every second event (S0 §8.6).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from benchmarks.plan import EVENT_BYTES, MILLISECOND, Exit, Group, RouterPlan, fitting_period
from benchmarks.rig import FLOORS, Forwarder, Rig, Subscriber, run_watched, warm_up_s
from benchmarks.statistics import Bin, Summary
from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted

if TYPE_CHECKING:
    from benchmarks.plan import Keep
    from benchmarks.processes import Answer

REFERENCE_CHANNEL, LOAD_CHANNELS = 1, (2, 3)
REFERENCE_ID, LOAD_IDS = 1, (1_000, 2_000)
HOP_CHANNEL, SUBSCRIBER_CHANNEL = 100, 200
REFERENCE_VARIABLES = 20
"""Number of variables that the reference's ticks cycle through, so that no stall costs a sample."""

LOAD_EVENTS_PER_S_MAX = 150_000
SETTLE_S = 0.1


@dataclass(frozen=True, slots=True)
class ChainPlan:
    """Plan of a run: kind and number of hops, total load variables, and rates of subscribers."""

    kind: str
    routers: int
    load_variables: int = 0
    is_multicast: bool = False
    halved: int = 0
    reference_s: float = 1e-3
    lag_s: float = 0.0
    is_real_time: bool = False
    """Hops, receivers and the reference's publisher are real-time, as in a cloud, if permitted."""
    seal: str = ""
    """Library that seals all channels of a chain without multicast; empty: none is sealed."""


@dataclass(frozen=True, slots=True)
class ChainRun:
    """Result of a run; throughputs in events/ms over all publishers or subscribers."""

    summary: Summary
    bins: tuple[Bin, ...]
    published_per_ms: float
    published_per_ms_predicted: float
    received_per_ms: float
    reference_per_ms: float
    cpu_percent: tuple[float, ...]
    expected: int
    received: int
    policed: int
    local: tuple[tuple[int, int], ...]
    """Latencies inside the first hop, if it is a core: (upper edge in ns, events)."""

    @property
    def lost(self) -> int:
        """Return the number of events that load subscribers should have received and did not."""
        return self.expected - self.received

    @property
    def drop_percent(self) -> float:
        """Return the share of the expected deliveries that never came."""
        return 100.0 * self.lost / self.expected if self.expected else 0.0


def run_chain(plan: ChainPlan, seconds: float) -> ChainRun:
    """Build the chain, load it, and measure the reference pair for `seconds` after warm-up."""
    warm_up = warm_up_s(plan.kind, seconds)
    total_s = seconds + warm_up
    load_groups = _load_groups(plan)
    with Rig() as rig:
        rig.prepare(plan.kind, hops=plan.routers, publishers=1 + len(load_groups))
        ring_events = 1 << int(total_s * LOAD_EVENTS_PER_S_MAX).bit_length()
        subscriber, hops = build_chain(rig, plan, load_groups, ring_events=ring_events)
        reference = rig.publisher(hops[0], first_channel=REFERENCE_CHANNEL)
        loaders = [
            rig.publisher(hops[0], first_channel=LOAD_CHANNELS[index])
            for index in range(len(load_groups))
        ]
        for loader, group in zip(loaders, load_groups, strict=True):
            loader.begin(_load_question(plan, group, total_s))
        answer, window = run_watched(
            reference,
            reference_question(plan, total_s),
            watched=[hop.process for hop in hops],
            pages=[],
            warm_up=warm_up,
        )
        loads = [loader.finish(within_s=total_s + 30.0) for loader in loaders]
        time.sleep(SETTLE_S)
        last = len(subscriber.ports) - 1
        taken = subscriber.take(last, **reference_of(), warm_up_s=warm_up)
        return _conclude(
            taken,
            loads,
            cpu_percent=tuple(100.0 * cpu_s / window.seconds for cpu_s in window.cpu_s),
            expected=_expected(plan, len(subscriber.ports), int(answer["sent"]), loads),
            received=sum(subscriber.pages.delivered()),
            states=[hop.process.ask({}) for hop in hops],
        )


def _load_groups(plan: ChainPlan) -> list[Group]:
    """Return the load variables, half of them at each load publisher (S0 §8.3)."""
    first = plan.load_variables // 2
    return [
        Group(
            first_id=LOAD_IDS[index], count=count, period=MILLISECOND, source=LOAD_CHANNELS[index]
        )
        for index, count in enumerate((plan.load_variables - first, first))
        if count
    ]


def reference_of() -> dict[str, Any]:
    """Return the question that asks a subscriber for the reference alone."""
    return {"first_id": REFERENCE_ID, "count": REFERENCE_VARIABLES}


def build_chain(
    rig: Rig, plan: ChainPlan, load_groups: list[Group], *, ring_events: int
) -> tuple[Subscriber, list[Forwarder]]:
    """Start the subscriber, then the hops from last to first, each with the address of the next."""
    reference = Group(
        first_id=REFERENCE_ID,
        count=REFERENCE_VARIABLES,
        period=fitting_period(plan.reference_s * REFERENCE_VARIABLES),
        source=REFERENCE_CHANNEL,
    )
    receivers = plan.routers if plan.is_multicast else 1
    counting: tuple[Keep, ...] = ("count",)
    keep = (*counting * (receivers - 1), "ring")
    priority_wanted = None if plan.is_real_time else 0
    fifo_priority = scheduling_granted(priority_wanted, ROUTER_PRIORITY).fifo_priority
    subscriber = rig.subscriber(
        [reference, *load_groups],
        keep,
        ring_events=ring_events,
        is_real_time=plan.is_real_time,
        seal=plan.seal,
        channels=(SUBSCRIBER_CHANNEL + plan.routers,),
    )
    hops: list[Forwarder] = []
    for position in range(plan.routers, 0, -1):
        is_last = position == plan.routers
        mine = SUBSCRIBER_CHANNEL + position
        onward = HOP_CHANNEL + position + 1
        outlets = [] if is_last else [hops[0].outlet(onward)]
        if is_last or plan.is_multicast:
            outlets.append(subscriber.outlet(mine, position - 1 if plan.is_multicast else 0))
        reference_exit = Exit(mine if is_last else onward)
        load_exits = [] if is_last else [Exit(onward, (_every_after(plan, position),))]
        if is_last or plan.is_multicast:
            load_exits.append(Exit(mine, (2 if position <= plan.halved else 1,)))
        groups = (
            replace(reference, exits=(reference_exit,)),
            *(replace(group, exits=tuple(load_exits)) for group in load_groups),
        )
        is_first = position == 1
        router = RouterPlan(
            outlets=tuple(outlets),
            groups=groups,
            publishers=(REFERENCE_CHANNEL, *LOAD_CHANNELS) if is_first else (),
            upstreams=() if is_first else (HOP_CHANNEL + position,),
            fifo_priority=fifo_priority,
            seal=plan.seal,
        )
        hops.insert(0, rig.forwarder(plan.kind, router))
    return subscriber, hops


def _every_after(plan: ChainPlan, position: int) -> int:
    """Return the divisor between hops: 2 if all later subscribers take half of the events."""
    return 2 if plan.halved >= plan.routers and position < plan.routers else 1


def reference_question(plan: ChainPlan, total_s: float) -> dict[str, object]:
    return {
        "do": "single",
        "first_id": REFERENCE_ID,
        "count": REFERENCE_VARIABLES,
        "per_tick": 1,
        "tick_s": plan.reference_s,
        "event_bytes": EVENT_BYTES,
        "seconds": total_s,
        "is_real_time": plan.is_real_time,
    }


def _load_question(plan: ChainPlan, group: Group, total_s: float) -> dict[str, object]:
    return {
        "do": "load",
        "first_id": group.first_id,
        "count": group.count,
        "lag_s": plan.lag_s,
        "seconds": total_s,
    }


def _expected(plan: ChainPlan, receivers: int, reference_sent: int, loads: list[Answer]) -> int:
    """Return the exact deliveries of the rate law, from the publishers' own time stamps."""
    all_sent = sum(int(load["sent"]) for load in loads)
    half_sent = sum(int(load["even_slots"]) for load in loads)
    halved = min(plan.halved, receivers)
    # A floor knows no variables, so each of its subscribers gets the reference as well.
    references = receivers if plan.kind in FLOORS else 1
    return all_sent * (receivers - halved) + half_sent * halved + reference_sent * references


def _conclude(
    taken: Answer,
    loads: list[Answer],
    *,
    cpu_percent: tuple[float, ...],
    expected: int,
    received: int,
    states: list[Answer],
) -> ChainRun:
    seconds = max((float(load["seconds"]) for load in loads), default=float(taken["seconds"]))
    reference_per_ms = int(taken["taken"]) / (1e3 * seconds)
    return ChainRun(
        summary=Summary(**taken["summary"]),
        bins=tuple(Bin(**part) for part in taken["bins"]),
        published_per_ms=sum(float(load["events_per_ms"]) for load in loads) + reference_per_ms,
        published_per_ms_predicted=reference_per_ms
        + sum(float(load["events_per_ms_predicted"]) for load in loads),
        received_per_ms=received / (1e3 * seconds),
        reference_per_ms=reference_per_ms,
        cpu_percent=cpu_percent,
        expected=expected,
        received=received,
        policed=sum(state.get("counters", {}).get("policed", 0) for state in states),
        local=tuple((upper, count) for upper, count in states[0].get("histogram", ())),
    )
