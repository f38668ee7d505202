"""Subscriptions a second into a cloud with thousands of access rules, beside one with a rule.

Both clouds stand at the same time and take their storms in turn, so that a pair of storms sees the
same machine. Most rules name other end-points, as in a grid where every desk has a rule of its own;
those of the clients come last. A run that loses more than the bound fails.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.cloud_plan import CLOUD, two_rings
from benchmarks.cloud_rig import CloudRig
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
from benchmarks.machine import MachineWatch
from benchmarks.subscribing import Asked, Storm, Subscribers
from gridstat.model.access_rules import AccessRule
from lab.open_access import OPEN_RULE

if TYPE_CHECKING:
    from collections.abc import Sequence

EDGES, RING = 4, 3
OUTSTANDING: Final = 64
QOS: Final = {"latency_ms": 50, "redundancy": 1}
SLOW: Final = (1, 1)
LOSS_MAX: Final = 0.05
"""Largest part of the subscriptions a second that the rules may cost."""


def rules_of(count: int) -> tuple[AccessRule, ...]:
    """Return so many rules: one a desk for its own part of the names, the clients' last."""
    desks = (
        AccessRule(
            f"desk-{at}", f"{CLOUD}/desk-{at}/*", ("subscribe", "find"), f"{CLOUD}/s-{at}/**"
        )
        for at in range(count - 1)
    )
    return (*desks, OPEN_RULE)


class Lane:
    """One of the two clouds, with its clients and the storms that it took."""

    def __init__(self, rig: CloudRig, subscriptions: int) -> None:
        self._rig = rig
        self._ends = Subscribers(rig, clients=EDGES, processes=1)
        of_each = max(1, subscriptions // EDGES // EDGES)
        self._names = self._ends.shifted(self._ends.publish("v", of_each, SLOW))
        self.storms: list[Storm] = []

    def take(self) -> Storm:
        """Subscribe to everything, end it again, and wait for the routers."""
        storm = self._ends.storm(self._names, Asked(1, OUTSTANDING, QOS))
        self._rig.await_in_step()
        self._ends.unsubscribe()
        return storm


def measure(options: Options, progress: Progress) -> Result:
    """Measure pairs of storms, one into each cloud, in alternating order."""
    watch = MachineWatch()
    count, pairs = options.whole("rules"), options.whole("runs")
    subscriptions = options.whole("subscriptions")
    progress(0.0, f"starting two clouds, one with {count:,} rules")
    with ExitStack() as stack:
        lanes = [
            Lane(stack.enter_context(rig), subscriptions)
            for rig in (
                CloudRig(two_rings(EDGES, RING), folder=options.text("folder"), rules=rules)
                for rules in ((OPEN_RULE,), rules_of(count))
            )
        ]
        for lane in lanes:
            lane.take()  # Warms up.
        for pair in range(pairs):
            progress(0.2 + 0.8 * pair / pairs, f"pair {pair + 1} of {pairs}")
            for lane in lanes if pair % 2 == 0 else reversed(lanes):
                lane.storms.append(lane.take())
    progress(1.0, "done")
    figures = _figures(lanes[0].storms, lanes[1].storms)
    bounds = (
        Bound("loss", float(figures["loss"]), LOSS_MAX),
        Bound("failures", float(figures["failures"]), 0),
    )
    figures |= {"rules": count, "runs": pairs, **watch.figures()}
    return Result(
        figures=figures,
        title=f"subscriptions into a cloud with {count:,} rules, beside one with a single rule",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in figures.items()),
        bounds=bounds,
    )


def _figures(one: Sequence[Storm], many: Sequence[Storm]) -> dict[str, Figure]:
    """Return the figures of both clouds; `loss` is the median over adjacent storms."""
    ratios = [more.per_s / few.per_s for few, more in zip(one, many, strict=True)]
    cpu = [
        more.each_ms(more.broker_cpu_s) / few.each_ms(few.broker_cpu_s)
        for few, more in zip(one, many, strict=True)
    ]
    return {
        "one_rule_subscriptions_per_s": middle([storm.per_s for storm in one], 1),
        "subscriptions_per_s": middle([storm.per_s for storm in many], 1),
        "loss": round(1 - median(ratios), 4),
        "broker_cpu_ratio": round(median(cpu), 3),
        "subscriptions": one[0].granted,
        "failures": sum(storm.failed for storm in (*one, *many)),
    }


ACCESS_RULES = Experiment(
    name="access-rules",
    summary="subscriptions a second with 10,000 access rules, beside a cloud with one",
    parameters=(
        Parameter("runs", 10, "pairs of storms, one into each cloud", least=1),
        Parameter("rules", 10_000, "rules of the second cloud", least=2),
        Parameter("subscriptions", 2_000, "subscriptions of one storm", least=16),
        Parameter("folder", "", "where the clouds' files and journals lie; temporary ones"),
    ),
    measure=measure,
)
