"""Subscriptions a second into clouds with thousands of access rules, beside one with a rule.

Three clouds stand at the same time and take their storms in turn: `one` has a single rule; in
`others` all rules but one name other end-points, as in a grid where every desk has a rule of its
own; in `own` they all apply to the clients. The cloud that is started first is not as fast as the
last on some machines, so the clouds are started twice, the second time in reverse order, and the
loss is taken over both. A run that loses more than the bound fails.
"""

from __future__ import annotations

from contextlib import ExitStack
from math import sqrt
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

OUTSTANDING: Final = 64
QOS: Final = {"latency_ms": 50, "redundancy": 1}
SLOW: Final = (1, 1)
LOSS_MAX: Final = 0.05
"""Largest part of the subscriptions a second that the rules may cost."""


ONE, OTHERS, OWN = "one", "others", "own"


def rules_of(kind: str, count: int) -> tuple[AccessRule, ...]:
    """Return the rules of a cloud: one for each part of the names, and that of everybody last."""
    if kind == ONE:
        return (OPEN_RULE,)
    who = "*" if kind == OWN else "desk-{}/*"
    parts = (
        AccessRule(
            f"part-{at}",
            f"{CLOUD}/{who.format(at)}",
            ("subscribe", "find"),
            f"{CLOUD}/s-{at}/**",
        )
        for at in range(count - 1)
    )
    return (*parts, OPEN_RULE)


class Lane:
    """One of the clouds, with its clients."""

    def __init__(self, rig: CloudRig, *, clients: int, subscriptions: int) -> None:
        self._rig = rig
        self._ends = Subscribers(rig, clients=clients, processes=1)
        of_each = max(1, subscriptions // clients // clients)
        self._names = self._ends.shifted(self._ends.publish("v", of_each, SLOW))

    def take(self) -> Storm:
        """Subscribe to everything, end it again, and wait for the routers."""
        storm = self._ends.storm(self._names, Asked(1, OUTSTANDING, QOS))
        self._rig.await_in_step()
        self._ends.unsubscribe()
        return storm


def measure(options: Options, progress: Progress) -> Result:
    """Measure storms into each cloud in turn, with the clouds started in either order."""
    watch = MachineWatch()
    count, runs = options.whole("rules"), options.whole("runs")
    rounds: list[dict[str, Storm]] = []
    kinds = [ONE, OTHERS, OWN]
    for half, order in enumerate((kinds, kinds[::-1])):
        progress(half / 2, f"starting {' and '.join(order)}, with up to {count:,} rules")
        with ExitStack() as stack:
            lanes = {kind: _lane(stack, kind, options) for kind in order}
            for lane in lanes.values():
                lane.take()  # Warms up.
            for run in range(runs):
                progress(half / 2 + (0.2 + 0.8 * run / runs) / 2, f"round {run + 1} of {runs}")
                turn = order[run % 3 :] + order[: run % 3]
                rounds.append({kind: lanes[kind].take() for kind in turn})
    progress(1.0, "done")
    figures = _figures(rounds, runs)
    bounds = (
        Bound("loss", float(figures["loss"]), LOSS_MAX),
        Bound("loss_own", float(figures["loss_own"]), LOSS_MAX),
        Bound("failures", float(figures["failures"]), 0),
    )
    figures |= {"rules": count, "runs": runs, **watch.figures()}
    return Result(
        figures=figures,
        title=f"subscriptions into clouds with {count:,} rules, beside one with a single rule",
        columns=("figure", "value"),
        table=tuple((name, f"{value}") for name, value in figures.items()),
        bounds=bounds,
    )


def _lane(stack: ExitStack, kind: str, options: Options) -> Lane:
    rules = rules_of(kind, options.whole("rules"))
    edges = options.whole("edges")
    topology = two_rings(edges, options.whole("ring"))
    rig = CloudRig(topology, folder=options.text("folder"), rules=rules)
    subscriptions = options.whole("subscriptions")
    return Lane(stack.enter_context(rig), clients=edges, subscriptions=subscriptions)


def _figures(rounds: Sequence[dict[str, Storm]], runs: int) -> dict[str, Figure]:
    """Return the figures of all clouds; a loss is that of storms side by side."""
    found: dict[str, Figure] = {}
    for kind, name in ((ONE, "one_rule_"), (OTHERS, ""), (OWN, "own_")):
        found[f"{name}subscriptions_per_s"] = middle([each[kind].per_s for each in rounds], 1)
    for kind, name in ((OTHERS, ""), (OWN, "_own")):
        per_s = [each[kind].per_s / each[ONE].per_s for each in rounds]
        cpu = [
            each[kind].each_ms(each[kind].broker_cpu_s) / each[ONE].each_ms(each[ONE].broker_cpu_s)
            for each in rounds
        ]
        found[f"loss{name}"] = round(1 - over_both_orders(per_s, runs), 4)
        found[f"broker_cpu_ratio{name}"] = round(over_both_orders(cpu, runs), 3)
        first, last = (1 - median(some) for some in (per_s[:runs], per_s[runs:]))
        found[f"loss{name}_by_order"] = f"{first:.3f} and {last:.3f}"
    found["subscriptions"] = rounds[0][ONE].granted
    found["failures"] = sum(storm.failed for each in rounds for storm in each.values())
    return found


def over_both_orders(ratios: Sequence[float], runs: int) -> float:
    """Return the ratio over both halves: what one order of starting adds, the other takes away."""
    return sqrt(median(ratios[:runs]) * median(ratios[runs:]))


ACCESS_RULES = Experiment(
    name="access-rules",
    summary="subscriptions a second with 10,000 access rules, of others or their own, beside one",
    parameters=(
        Parameter("runs", 5, "storms into each cloud, in each order of starting", least=1),
        Parameter("rules", 10_000, "rules of the second and third cloud", least=2),
        Parameter("subscriptions", 2_000, "subscriptions of one storm", least=16),
        Parameter("edges", 4, "edge routers of a cloud, each with a client", least=2),
        Parameter("ring", 3, "routers of each of the two rings between them", least=1),
        Parameter("folder", "", "where the clouds' files and journals lie; temporary ones"),
    ),
    measure=measure,
)
