"""A flood of forged datagrams on a sealed channel beside admitted events of the same router.

The router must open every forged datagram to see that it is forged. The same flood at a port that
nobody listens on costs the machine as much: the ratio of the two tails is the router's own share.
"""

from __future__ import annotations

import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
from benchmarks.machine import MachineWatch, processors_awake
from benchmarks.measurements import OUT, Pace, let_arrive, period_ns
from benchmarks.plan import Exit, Group, RouterPlan
from benchmarks.rig import CORE, LOOPBACK, Rig
from benchmarks.sealed_channels import backends_here
from benchmarks.statistics import median_ratio
from gridstat.core.scheduling import ROUTER_PRIORITY, scheduling_granted
from gridstat.model.errors import LayoutError

if TYPE_CHECKING:
    from benchmarks.processes import Answer

PUBLISHER = 1
TICKS_PER_S = 1_000
FORGED, CLOSED = "forged", "closed"
P99_RATIO_MAX = 1.5
RATE_SHARE_MIN = 0.99
SETTLE_S = 0.1


@dataclass(slots=True)
class Runs:
    """Tails and counts by the target of the flood, in the order of measuring."""

    p99_us: dict[str, list[float]] = field(default_factory=dict)
    p50_us: dict[str, list[float]] = field(default_factory=dict)
    per_s: list[float] = field(default_factory=list)
    lost: int = 0
    flooded: int = 0
    rejected: int = 0
    sent: int = 0
    hop_cpu_us: dict[str, float] = field(default_factory=lambda: {FORGED: 0.0, CLOSED: 0.0})
    """Processor time of the router in all halves of a kind."""


def measure(options: Options, progress: Progress) -> Result:
    """Flood the router's port and a closed one in turns."""
    here = backends_here()
    if not here:
        raise LayoutError("this machine cannot seal datagrams", hint="install OpenSSL")
    seal = options.text("backend") or here[0]
    watch, runs = MachineWatch(), Runs()
    with processors_awake() as awake:
        _run_all(seal, options, progress, runs)
    progress(1.0, "done")
    ratio = round(median_ratio(runs.p99_us[FORGED], runs.p99_us[CLOSED]), 3)
    slowest_per_s = min(runs.per_s)
    # A publisher that is held up leaves ticks out, and a flood that is too slow is none.
    wanted = options.whole("admitted_per_s") * options.real("seconds") * len(runs.per_s)
    unsent = round(max(0.0, RATE_SHARE_MIN * wanted - runs.sent))
    unflooded = round(max(0.0, RATE_SHARE_MIN * options.whole("forged_per_s") - slowest_per_s))
    figures: dict[str, Figure] = {
        "backend": seal,
        "joined": options.whole("joined"),
        "p99_ratio": ratio,
        **{f"{name}_p99_us": middle(values, 1) for name, values in runs.p99_us.items()},
        **{f"{name}_p50_us": middle(values, 1) for name, values in runs.p50_us.items()},
        "forged_per_s": middle(runs.per_s, 0),
        "forged_per_s_least": round(slowest_per_s),
        "hop_us_each_forged": round(
            (runs.hop_cpu_us[FORGED] - runs.hop_cpu_us[CLOSED]) / max(1, runs.flooded), 3
        ),
        "forged_sent": runs.flooded,
        "forged_rejected": runs.rejected,
        "admitted_sent": runs.sent,
        "lost": runs.lost,
        "pairs": options.whole("runs"),
        "processors_awake": awake,
        **watch.figures(),
    }
    bounds = (
        Bound("p99_ratio", ratio, P99_RATIO_MAX),
        Bound("lost", runs.lost, 0),
        Bound("forged_not_rejected", runs.flooded - runs.rejected, 0),
        Bound("forged_per_s_missing", unflooded, 0),
        Bound("admitted_missing", unsent, 0),
    )
    figures |= {bound.figure: bound.value for bound in bounds}
    return Result(
        figures=figures,
        title="admitted events beside a flood of forged datagrams",
        columns=("figure", "measured", "at most", "met"),
        table=tuple(
            (bound.figure, f"{bound.value:,.3f}", f"{bound.at_most:g}", bound.met)
            for bound in bounds
        ),
        bounds=bounds,
    )


def _run_all(seal: str, options: Options, progress: Progress, runs: Runs) -> None:
    pairs, seconds = options.whole("runs"), options.real("seconds")
    per_tick = options.whole("admitted_per_s") // TICKS_PER_S
    pace = Pace(is_burst=True, per_tick=per_tick, tick_s=1 / TICKS_PER_S)
    group = Group(first_id=1, count=pace.variables, period=pace.period, exits=(Exit(OUT),))
    ring_events = 1 << int(2 * options.whole("admitted_per_s") * seconds).bit_length()
    with Rig() as rig, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as reserved:
        rig.prepare(CORE)
        subscriber = rig.subscriber(
            [group], ["ring"], ring_events=ring_events, is_real_time=True, seal=seal, channels=[OUT]
        )
        priority = scheduling_granted(None, ROUTER_PRIORITY).fifo_priority
        plan = RouterPlan(
            outlets=(subscriber.outlet(OUT),),
            groups=(group,),
            publishers=(PUBLISHER,),
            fifo_priority=priority,
            seal=seal,
        )
        hop = rig.forwarder(CORE, plan)
        publisher = rig.publisher(hop, subscriber, seal=seal)
        flooder = rig.flooder(hop, PUBLISHER, seal, is_joined=bool(options.whole("joined")))
        # Bound and closed again: a port that was free a moment ago, and that nobody listens on.
        reserved.bind((LOOPBACK, 0))
        ports = {FORGED: hop.data_port, CLOSED: reserved.getsockname()[1]}
        reserved.close()
        question = {
            "do": "burst",
            "first_id": 1,
            "count": pace.variables,
            "per_tick": per_tick,
            "tick_s": pace.tick_s,
            "event_bytes": pace.event_bytes,
            "period_ns": period_ns(pace.period),
            "seconds": seconds,
        }
        for pair in range(pairs):
            for target in (FORGED, CLOSED) if pair % 2 == 0 else (CLOSED, FORGED):
                progress(pair / pairs, f"pair {pair + 1} of {pairs}, flood at the {target} port")
                rejected = hop.count("sealed_forged")
                before = sum(subscriber.pages.delivered())
                cpu_ns = hop.process.cpu_ns()
                flooder.begin(
                    {
                        "port": ports[target],
                        "per_s": options.whole("forged_per_s"),
                        "seconds": seconds + 2 * SETTLE_S,
                    }
                )
                time.sleep(SETTLE_S)
                answer = publisher.ask(question, within_s=seconds + 30.0)
                flood = flooder.finish(within_s=seconds + 30.0)
                let_arrive(subscriber, before + int(answer["sent"]))
                taken = subscriber.take(warm_up_s=0.0)
                runs.hop_cpu_us[target] += (hop.process.cpu_ns() - cpu_ns) / 1e3
                _keep(runs, target, flood, int(answer["sent"]), taken)
                if target == FORGED:
                    time.sleep(SETTLE_S)
                    runs.rejected += hop.count("sealed_forged") - rejected


def _keep(runs: Runs, target: str, flood: Answer, sent: int, taken: Answer) -> None:
    summary = taken["summary"]
    runs.p99_us.setdefault(target, []).append(float(summary["p99_us"]))
    runs.p50_us.setdefault(target, []).append(float(summary["p50_us"]))
    runs.per_s.append(float(flood["per_s"]))
    runs.lost += sent - int(taken["taken"])
    runs.sent += sent
    if target == FORGED:
        runs.flooded += int(flood["sent"])


FORGED_FLOOD = Experiment(
    name="forged-flood",
    summary="admitted events beside a flood of forged datagrams on their own sealed channel",
    parameters=(
        Parameter("runs", 10, "pairs of a flood at the router and one at a closed port", least=1),
        Parameter("seconds", 3.0, "measured time of one half of a pair", least=0.01),
        Parameter("forged_per_s", 150_000, "forged datagrams a second", least=1),
        Parameter("admitted_per_s", 20_000, "admitted events a second", least=1_000),
        Parameter("joined", 0, "1: send joined segments, on a machine too slow for single ones"),
        Parameter("backend", "", "library: ipsec-mb or evp; the faster one that is here"),
    ),
    measure=measure,
)
