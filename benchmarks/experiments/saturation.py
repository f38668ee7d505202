"""Latency of a slow variable's event and of an alert while other traffic saturates the router."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from benchmarks.measurements import OUT, PACKED, flood_question, let_arrive
from benchmarks.plan import Exit, Group, RouterPlan
from benchmarks.rig import CORE, Rig, warm_up_s
from benchmarks.statistics import NS_PER_S

STREAM = replace(PACKED, in_flight_max=8_192)
LOAD = STREAM.group((Exit(OUT),))
PROBE_TICK_S = 5e-3
SLOW = Group(
    first_id=10_001,
    count=200,
    period=(1, 1),
    source=2,
    phase_step_ns=int(PROBE_TICK_S * 1e9),
    exits=(Exit(OUT + 1),),
)
"""Variables of one event a second each, at their own phases: a sample every 5 ms."""

ALERTS = Group(
    first_id=20_001, count=10, period=None, source=3, is_urgent=True, exits=(Exit(OUT + 2),)
)


@dataclass(frozen=True, slots=True)
class Saturated:
    """Tails of the two kinds of lone event, and the load beside them."""

    slow_p99_us: float
    alert_p99_us: float
    load_events_per_s: float
    cpu_percent: float
    lost: int
    policed: int


def saturate_once(seconds: float, *, fifo_priority: int = 0) -> Saturated:
    """Saturate one router for `seconds` and send slow events and alerts through it meanwhile."""
    warm_up = warm_up_s(CORE, seconds)
    total_s = seconds + 2 * warm_up
    with Rig() as rig:
        rig.prepare(CORE, publishers=2)
        # The load's own ends give way to the router and the probes, whose tail is measured.
        loaded = rig.sink(1, event_bytes=STREAM.event_bytes, is_background=True)
        probed = rig.subscriber([SLOW, ALERTS], ["ring", "ring"])
        plan = RouterPlan(
            outlets=(loaded.outlet(OUT), probed.outlet(OUT + 1, 0), probed.outlet(OUT + 2, 1)),
            groups=(LOAD, SLOW, ALERTS),
            publishers=(1, 2, 3),
            fifo_priority=fifo_priority,
        )
        hop = rig.forwarder(CORE, plan)
        load = rig.publisher(hop, loaded, is_background=True)
        probe = rig.publisher(hop, senders=2, first_channel=2)
        cpu_ns = hop.process.cpu_ns()
        load.begin({**flood_question(STREAM, total_s), "is_spinning": True})
        time.sleep(warm_up)
        sent = probe.ask(_probe_question(seconds), within_s=total_s + 30.0)
        flooded = load.finish(within_s=total_s + 30.0)
        used_s = (hop.process.cpu_ns() - cpu_ns) / NS_PER_S
        let_arrive(probed, int(sent["sent"]))
        slow, alerts = probed.take(0, warm_up_s=0.0), probed.take(1, warm_up_s=0.0)
        arrived = int(slow["taken"]) + int(alerts["taken"])
        return Saturated(
            slow_p99_us=slow["summary"]["p99_us"],
            alert_p99_us=alerts["summary"]["p99_us"],
            load_events_per_s=flooded["sent"] / flooded["seconds"],
            cpu_percent=100.0 * used_s / flooded["seconds"],
            lost=int(flooded["lost"]) + int(sent["sent"]) - arrived,
            policed=hop.policed(),
        )


def _probe_question(seconds: float) -> dict[str, object]:
    return {
        "do": "probe",
        "slow_first_id": SLOW.first_id,
        "slow_count": SLOW.count,
        "alert_first_id": ALERTS.first_id,
        "alert_count": ALERTS.count,
        "tick_s": PROBE_TICK_S / 2,
        "seconds": seconds,
    }
