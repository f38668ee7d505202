"""Recovery of a real cloud: channels cut, routers and broker killed, end-points that come back.

Everything runs in network namespaces (`lab/`), with streams of 60 events a second; each figure is
counted from the fault, or from the start of the new process, on one clock.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar

from benchmarks.errors import BenchmarkError
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
from lab.errors import LabError
from lab.grid_plan import two_ways
from lab.load import LoadPlan
from lab.trials import processor_ticks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from benchmarks.recovery_trials import BrokerOutage, Outage, StateChange

Trial = TypeVar("Trial")
PARTS: Final = ("channel", "router", "access", "broker", "endpoints", "orders")
ON_TWO_WAYS: Final = ("channel", "router", "access", "broker")
DEAD_S_SHORT: Final = (3.0, 6.0)
"""Repeated deaths of the broker: long enough for routers to retry at their slowest pace."""
FAILURES_MAX: Final = 3
"""Failed trials of one kind after which the rest of them is left out."""
FAILURE_LETTERS_MAX: Final = 300


@dataclass(slots=True)
class Trials:
    """Progress over all trials, and the failed ones."""

    progress: Progress
    steps: int
    done: int = 0
    failures: list[str] = field(default_factory=list)
    left_out: int = 0

    def step(self, what: str) -> None:
        self.progress(min(0.99, self.done / max(1, self.steps)), what)
        self.done += 1

    def several(self, count: int, what: str, trial: Callable[[int], Trial]) -> list[Trial]:
        """Return the results of the trials; a failed one is counted and does not end the others."""
        found: list[Trial] = []
        failed = 0
        for at in range(count):
            self.step(f"{what}, trial {at + 1} of {count}")
            try:
                found.append(trial(at))
            except (BenchmarkError, LabError) as error:
                failed += 1
                reason = str(error).partition("\n")[0]
                self.failures.append(f"{what}, trial {at + 1}: {reason}"[:FAILURE_LETTERS_MAX])
            if failed == FAILURES_MAX:
                self.left_out += count - at - 1
                break
        return found

    def figures_of_failures(self) -> dict[str, Figure]:
        texts = {f"failure_{at}": text for at, text in enumerate(self.failures, start=1)}
        return {"trials_failed": len(self.failures), "trials_left_out": self.left_out, **texts}


@dataclass(slots=True)
class _Run:
    """Options of one run, its trials, and its figures so far."""

    options: Options
    random: Random
    parts: tuple[str, ...]
    trials: Trials
    figures: dict[str, Figure] = field(default_factory=dict)


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
        random=Random(options.whole("seed")),
        parts=parts,
        trials=Trials(progress, steps=sum(counts[part] for part in parts) + 4),
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
        **run.trials.figures_of_failures(),
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
    """Measure single-path streams with a second way, and the same variables over two paths."""
    run.trials.step("starting a cloud of 8 routers in namespaces")
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
            cuts = run.trials.several(
                trials, "cut", lambda at: faults.cut_channel(is_one_way=at % 2 == 1)
            )
            run.figures |= _outage_figures("channel_", cuts)
            outages += cuts
        if "router" in run.parts:
            kills = run.trials.several(trials, "kill", lambda _: faults.kill_router())
            run.figures |= _outage_figures("router_", kills)
            run.figures |= spread("router_back_s", [each.back_s for each in kills])
            outages += kills
        if outages:
            run.figures |= _outage_figures("", outages)
        if "access" in run.parts:
            run.figures |= _access(run, faults)
        if "broker" in run.parts:
            run.figures |= _broker(run, rig)


def _access(run: _Run, faults: PathFaults) -> dict[str, Figure]:
    """Cut wires of end-points with a second edge; such wires are no channels of a cloud."""
    cuts = run.trials.several(
        run.options.whole("returns"),
        "end-point cut off",
        lambda at: faults.cut_access(is_publishers=at % 2 == 0),
    )
    return {
        **spread("access_restore_ms", [each.restore_ms for each in cuts], digits=1),
        "access_two_path_lost": sum(each.two_path_lost for each in cuts),
    }


def _broker(run: _Run, rig: RecoveryRig) -> dict[str, Figure]:
    """Kill the broker for a minute once, then for some seconds repeatedly."""
    dead_s = run.options.real("dead_s")
    long = run.trials.several(
        1, f"broker dead for {dead_s:g} s", lambda _: kill_broker(rig, dead_s=dead_s)
    )
    run.trials.done += 9
    short = run.trials.several(
        run.options.whole("restarts"),
        "broker restart",
        lambda _: kill_broker(rig, dead_s=min(dead_s, run.random.uniform(*DEAD_S_SHORT))),
    )
    outages = long + short
    return {
        "broker_dead_s": dead_s,
        "broker_deaths": len(outages),
        "broker_dead_expected": sum(each.expected for each in long),
        **_change_figures([each.change for each in outages]),
        "lost": sum(each.lost + each.two_path_lost for each in outages),
        "single_path_lost": sum(each.lost for each in outages),
        "two_path_lost": sum(each.two_path_lost for each in outages),
        "events_expected": sum(each.expected for each in outages),
        **_after_long(long),
        **spread("digest_equal_s", [each.digest_equal_s for each in outages]),
    }


def _end_points(run: _Run, folder: Path) -> None:
    """Crash end-points with one edge each, and their edges."""
    run.trials.step("starting a chain of 3 routers")
    load = LoadPlan(variables=run.options.whole("variables"), rate=RATE, redundancy=1)
    with RecoveryRig(chain_plan(), load, folder) as rig:
        returns = EndPointReturns(rig)
        kinds: dict[str, Callable[[int], float]] = {
            "publisher_return_s": lambda _: returns.publisher(),
            "subscriber_return_s": lambda _: returns.subscriber(),
            "edge_return_s": returns.edge,
        }
        for name, trial in kinds.items():
            run.figures |= spread(
                name, run.trials.several(run.options.whole("returns"), name, trial)
            )


def _orders(run: _Run, folder: Path) -> None:
    """Kill a router with a large table, which must get the whole table back."""
    orders = run.options.whole("orders")
    run.trials.step(f"registering {orders} variables along a chain")
    with ManyOrders(folder, orders) as many:
        returns = run.options.whole("returns")
        took = run.trials.several(returns, f"router with {orders} variables", many.restart)
        run.figures |= {
            "router_orders": orders,
            **spread("router_restore_s", [each.restore_s for each in took]),
            **spread("router_table_s", [each.table_s for each in took]),
        }


def _after_long(outages: Sequence[BrokerOutage]) -> dict[str, Figure]:
    if not outages:
        return {}
    return {"digest_equal_s_after_long": round(outages[0].digest_equal_s, 3)}


def _change_figures(changes: Sequence[StateChange]) -> dict[str, Figure]:
    """Return the changes of state; all are 0 if a broker's return changes nothing."""
    return {
        "restarts_with_moves": sum(change.moved > 0 for change in changes),
        "restarts_with_other_contracts": sum(change.are_others for change in changes),
        "restarts_with_other_orders": sum(change.are_reordered for change in changes),
    }


def _outage_figures(prefix: str, outages: Sequence[Outage]) -> dict[str, Figure]:
    if not outages:
        return {f"{prefix}faults": 0}
    lost = [each.lost for each in outages]
    return {
        f"{prefix}faults": len(outages),
        **spread(f"{prefix}detect_ms", [each.detect_ms for each in outages], digits=1),
        **spread(f"{prefix}restore_ms", [each.restore_ms for each in outages], digits=1),
        f"{prefix}lost_per_fault": round(sum(lost) / len(lost), 2),
        f"{prefix}lost_per_fault_max": max(lost),
        f"{prefix}faults_two_path_lost": sum(each.two_path_lost for each in outages),
        f"{prefix}faults_duplicate": sum(each.duplicate for each in outages),
    }


def spread(name: str, values: Iterable[float], *, digits: int = 3) -> dict[str, Figure]:
    """Return median, 95th percentile and maximum of one figure; nothing for no values."""
    ordered = sorted(values)
    if not ordered:
        return {}
    return {
        f"{name}_p50": round(quantile(ordered, 0.5), digits),
        f"{name}_p95": round(quantile(ordered, 0.95), digits),
        f"{name}_max": round(ordered[-1], digits),
    }


RECOVERY = Experiment(
    name="recovery",
    summary="how soon streams, routers, brokers and end-points are back after a fault",
    parameters=(
        Parameter(
            "trials", 20, "channels cut, and routers killed, on the path of a stream", least=1
        ),
        Parameter("dead_s", 60.0, "how long the broker is dead, once"),
        Parameter("restarts", 20, "further restarts of the broker after some seconds", least=0),
        Parameter(
            "returns", 12, "of each: publisher, subscriber, edge, loaded router, access", least=1
        ),
        Parameter("orders", 10_000, "variables of the router that is restarted with many", least=1),
        Parameter(
            "variables", 4, "streams of 60 events a second, each with one and two paths", least=1
        ),
        Parameter("seed", 1, "fixes what is broken, and when between two events"),
        Parameter("only", "", f"a choice of {', '.join(PARTS)}"),
        Parameter("folder", "", "where the files go, such as the journal; default: temporary"),
    ),
    measure=measure,
)
