"""How a real cloud recovers: channels cut, routers and broker killed, end-points that come back.

Everything runs in network namespaces (`lab/`), with streams of 60 events a second; each figure is
counted from the fault, or from the start of the new process, on one clock.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final

from benchmarks.experiments.experiment import (
    Experiment,
    Figure,
    Options,
    Parameter,
    Progress,
    Result,
)
from benchmarks.recovery_returns import EndPointReturns, ManyOrders, chain_plan
from benchmarks.recovery_rig import RecoveryRig
from benchmarks.recovery_trials import DOUBLE, RATE, SINGLE, PathFaults, kill_broker
from benchmarks.subscribing import quantile
from lab.grid_plan import two_ways
from lab.load import LoadPlan
from lab.trials import processor_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.recovery_trials import BrokerOutage, Outage

PARTS: Final = ("channel", "router", "access", "broker", "endpoints", "orders")
ON_TWO_WAYS: Final = ("channel", "router", "access", "broker")
DEAD_S_SHORT: Final = (4.0, 8.0)
"""Of the repeated deaths of the broker: long enough for routers to retry at their slowest pace."""


@dataclass(slots=True)
class _Run:
    """Options and progress of one run, and its figures so far."""

    options: Options
    progress: Progress
    random: Random
    parts: tuple[str, ...]
    steps: int
    done: int = 0
    figures: dict[str, Figure] = field(default_factory=dict)

    def step(self, what: str) -> None:
        self.progress(min(0.99, self.done / max(1, self.steps)), what)
        self.done += 1


def measure(options: Options, progress: Progress) -> Result:
    parts = options.names("only", known=PARTS)
    load_before, ticks_before = os.getloadavg()[0], processor_ticks()
    trials, restarts = options.whole("trials"), options.whole("restarts")
    counts = {
        "channel": trials,
        "router": trials,
        "access": options.whole("returns"),
        "broker": restarts + 10,
        "endpoints": 3 * options.whole("returns"),
        "orders": options.whole("returns"),
    }
    run = _Run(
        options=options,
        progress=progress,
        random=Random(options.whole("seed")),
        parts=parts,
        steps=sum(counts[part] for part in parts) + 4,
    )
    with tempfile.TemporaryDirectory(
        prefix="gridstat-recovery-", dir=options.text("folder") or None
    ) as folder:
        if set(parts) & set(ON_TWO_WAYS):
            _on_two_ways(run, Path(folder) / "two-ways")
        if "endpoints" in parts:
            _end_points(run, Path(folder) / "chain")
        if "orders" in parts:
            _orders(run, Path(folder) / "orders")
    ticks = processor_ticks()
    busy = (ticks[0] - ticks_before[0]) / max(1, ticks[1] - ticks_before[1])
    run.figures |= {
        "trials": trials,
        "restarts": restarts,
        "returns": options.whole("returns"),
        "seed": options.whole("seed"),
        "machine_load_before": round(load_before, 2),
        "processors_busy": round(busy, 2),
    }
    progress(1.0, "done")
    return Result(
        figures=run.figures,
        title="recovery of a cloud in namespaces",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in run.figures.items()),
    )


def _on_two_ways(run: _Run, folder: Path) -> None:
    """Single-path streams with another way at hand, and the same variables over two paths."""
    run.step("starting a cloud of 8 routers in namespaces")
    load = LoadPlan(
        variables=run.options.whole("variables"),
        rate=RATE,
        redundancy_of={SINGLE: 1, DOUBLE: 2},
    )
    trials = run.options.whole("trials")
    with RecoveryRig(two_ways(subscribers=2), load, folder) as rig:
        faults = PathFaults(rig, run.random)
        outages: list[Outage] = []
        if "channel" in run.parts:
            cuts = _several(
                run, trials, "cut", lambda at: faults.cut_channel(is_one_way=at % 2 == 1)
            )
            run.figures |= _outage_figures("channel_", cuts)
            outages += cuts
        if "router" in run.parts:
            kills = _several(run, trials, "kill", lambda _: faults.kill_router())
            run.figures |= _outage_figures("router_", kills)
            run.figures |= spread("router_back_s", [each.back_s for each in kills])
            outages += kills
        if outages:
            run.figures |= _outage_figures("", outages)
        if "access" in run.parts:
            run.figures |= _access(run, faults)
        if "broker" in run.parts:
            run.figures |= _broker(run, rig)


def _several(run: _Run, count: int, what: str, trial: Callable[[int], Outage]) -> list[Outage]:
    outages: list[Outage] = []
    for at in range(count):
        last = f", last: {outages[-1].what}" if outages else ""
        run.step(f"{what} {at + 1} of {count}{last}")
        outages.append(trial(at))
    return outages


def _access(run: _Run, faults: PathFaults) -> dict[str, Figure]:
    """Wires of end-points that have a second edge; not among the channels of a cloud."""
    cuts = _several(
        run,
        run.options.whole("returns"),
        "end-point cut off",
        lambda at: faults.cut_access(is_publishers=at % 2 == 0),
    )
    return {
        **spread("access_restore_ms", [each.restore_ms for each in cuts], digits=1),
        "access_two_path_lost": sum(each.two_path_lost for each in cuts),
    }


def _broker(run: _Run, rig: RecoveryRig) -> dict[str, Figure]:
    """Dead for a minute once, then for some seconds again and again."""
    dead_s = run.options.real("dead_s")
    restarts = run.options.whole("restarts")
    run.step(f"broker dead for {dead_s:g} s")
    outages: list[BrokerOutage] = [kill_broker(rig, dead_s=dead_s)]
    run.done += 9
    for at in range(restarts):
        run.step(f"broker restart {at + 1} of {restarts}")
        short_s = min(dead_s, run.random.uniform(*DEAD_S_SHORT))
        outages.append(kill_broker(rig, dead_s=short_s))
    return {
        "broker_dead_s": dead_s,
        "broker_deaths": len(outages),
        "broker_dead_expected": outages[0].expected,
        "lost": sum(each.lost + each.two_path_lost for each in outages),
        "single_path_lost": sum(each.lost for each in outages),
        "two_path_lost": sum(each.two_path_lost for each in outages),
        "events_expected": sum(each.expected for each in outages),
        "digest_equal_s_after_long": round(outages[0].digest_equal_s, 3),
        **spread("digest_equal_s", [each.digest_equal_s for each in outages]),
    }


def _end_points(run: _Run, folder: Path) -> None:
    """End-points with one edge each: their crash, and their edge's, is felt."""
    run.step("starting a chain of 3 routers")
    load = LoadPlan(variables=run.options.whole("variables"), rate=RATE, redundancy=1)
    with RecoveryRig(chain_plan(), load, folder) as rig:
        returns = EndPointReturns(rig)
        kinds: dict[str, Callable[[int], float]] = {
            "publisher_return_s": lambda _: returns.publisher(),
            "subscriber_return_s": lambda _: returns.subscriber(),
            "edge_return_s": returns.edge,
        }
        for name, trial in kinds.items():
            took_s = []
            for at in range(run.options.whole("returns")):
                run.step(f"{name}, trial {at + 1}")
                took_s.append(trial(at))
            run.figures |= spread(name, took_s)


def _orders(run: _Run, folder: Path) -> None:
    """A router whose table is large is killed, and gets it back whole."""
    orders = run.options.whole("orders")
    run.step(f"registering {orders} variables along a chain")
    with ManyOrders(folder, orders) as many:
        took = []
        for at in range(run.options.whole("returns")):
            run.step(f"router with {orders} variables, trial {at + 1}")
            took.append(many.restart(at))
        run.figures |= {
            "router_orders": orders,
            **spread("router_restore_s", [each.restore_s for each in took]),
            **spread("router_table_s", [each.table_s for each in took]),
        }


def _outage_figures(prefix: str, outages: Sequence[Outage]) -> dict[str, Figure]:
    lost = [each.lost for each in outages]
    return {
        **spread(f"{prefix}detect_ms", [each.detect_ms for each in outages], digits=1),
        **spread(f"{prefix}restore_ms", [each.restore_ms for each in outages], digits=1),
        f"{prefix}lost_per_fault": round(sum(lost) / len(lost), 2),
        f"{prefix}lost_per_fault_max": max(lost),
        f"{prefix}faults_two_path_lost": sum(each.two_path_lost for each in outages),
        f"{prefix}faults_duplicate": sum(each.duplicate for each in outages),
    }


def spread(name: str, values: Iterable[float], *, digits: int = 3) -> dict[str, Figure]:
    """Median, 95th percentile and greatest of one figure."""
    ordered = sorted(values)
    return {
        f"{name}_p50": round(quantile(ordered, 0.5), digits),
        f"{name}_p95": round(quantile(ordered, 0.95), digits),
        f"{name}_max": round(ordered[-1], digits) if ordered else 0.0,
    }


RECOVERY = Experiment(
    name="recovery",
    summary="how soon streams, routers, brokers and end-points are back after a fault",
    parameters=(
        Parameter("trials", 20, "channels cut, and routers killed, on the path of a stream"),
        Parameter("dead_s", 60.0, "how long the broker is dead, once"),
        Parameter("restarts", 20, "further restarts of the broker after some seconds"),
        Parameter("returns", 20, "of each: publisher, subscriber, edge, loaded router, access"),
        Parameter("orders", 10_000, "variables of the router that is restarted with many"),
        Parameter("variables", 4, "streams of 60 events a second, each with one and two paths"),
        Parameter("seed", 1, "fixes what is broken, and when between two events"),
        Parameter("only", "", f"a choice of {', '.join(PARTS)}"),
        Parameter("folder", "", "where the files go, such as the journal; default: temporary"),
    ),
    measure=measure,
)
