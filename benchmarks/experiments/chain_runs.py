"""Parts that the chain experiments share: running plans in turn, and medians of repetitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.chain import ChainPlan, ChainRun, run_chain
from benchmarks.experiments.experiment import Figure, Progress, middle, per_router_figures
from benchmarks.rig import CORE, FLOOR_GSO, FLOOR_SINGLE, REFERENCE

if TYPE_CHECKING:
    from collections.abc import Iterable

KINDS = (CORE, FLOOR_SINGLE, FLOOR_GSO, REFERENCE)

ChainRuns = dict[ChainPlan, list[ChainRun]]
"""Each plan and its repetitions, in the order of measuring."""


def run_all(plans: Iterable[ChainPlan], seconds: float, progress: Progress) -> ChainRuns:
    """Run the plans in the order given, a plan as often as it comes."""
    steps = list(plans)
    runs: ChainRuns = {}
    for index, plan in enumerate(steps):
        halved = f", {plan.halved} at half rate" if plan.halved else ""
        load = f"{plan.load_variables} load variables"
        progress(index / len(steps), f"{plan.kind}, {plan.routers} routers, {load}{halved}")
        runs.setdefault(plan, []).append(run_chain(plan, seconds))
    progress(1.0, "done")
    return runs


def name_of(plan: ChainPlan) -> str:
    """Return the prefix of a plan's figures; our own core has no kind in front."""
    prefix = "" if plan.kind == CORE else f"{plan.kind}_"
    return f"{prefix}load{plan.load_variables}_routers{plan.routers}"


def middle_of(runs: list[ChainRun], field: str, digits: int = 3) -> float:
    """Return the median of one field of the runs."""
    return middle([float(getattr(run, field)) for run in runs], digits)


def middle_us(runs: list[ChainRun], field: str, digits: int = 1) -> float:
    """Return the median of one field of the runs' latencies."""
    return middle([float(getattr(run.summary, field)) for run in runs], digits)


def cpu_text(runs: list[ChainRun]) -> str:
    """Return the CPU per cent of each hop, first to last (S3-86: joined to the run's latency)."""
    hops = range(len(runs[0].cpu_percent))
    return " / ".join(f"{middle([run.cpu_percent[hop] for run in runs]):.1f}" for hop in hops)


def totals(runs: ChainRuns) -> dict[str, Figure]:
    """Return losses, refusals and the worst share of one router, over all runs of our own core.

    A chain's whole mean divided by its routers is an upper bound of the share of one router.
    """
    ours = {plan: kept for plan, kept in runs.items() if plan.kind == CORE}
    shares = [middle_us(kept, "mean_us", 2) / plan.routers for plan, kept in ours.items()]
    figures: dict[str, Figure] = {
        "lost": sum(run.lost for kept in ours.values() for run in kept),
        "policed": sum(run.policed for kept in ours.values() for run in kept),
    }
    return figures | (per_router_figures(max(shares)) if shares else {})
