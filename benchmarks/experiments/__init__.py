"""The experiments by name; `gridstat experiment run NAME` finds them here."""

from __future__ import annotations

from benchmarks.experiments.access_rules import ACCESS_RULES
from benchmarks.experiments.base import BASE
from benchmarks.experiments.changes import CHANGES
from benchmarks.experiments.distribution import DISTRIBUTION
from benchmarks.experiments.experiment import Comparison, Experiment, Parameter, Result
from benchmarks.experiments.forged_flood import FORGED_FLOOD
from benchmarks.experiments.forwarding import FORWARDING
from benchmarks.experiments.hops import HOPS
from benchmarks.experiments.latency_law import LATENCY_LAW
from benchmarks.experiments.listeners import LISTENERS
from benchmarks.experiments.load import LOAD, LOWER_BOUND
from benchmarks.experiments.multicast import MULTICAST
from benchmarks.experiments.pipeline import PIPELINE
from benchmarks.experiments.rate_filter import RATE_FILTER
from benchmarks.experiments.recovery import RECOVERY
from benchmarks.experiments.rotations import ROTATIONS
from benchmarks.experiments.sealing import SEALING
from benchmarks.experiments.storm import STORM
from benchmarks.experiments.subscribe import SUBSCRIBE
from benchmarks.experiments.throughput import THROUGHPUT
from benchmarks.experiments.tree import TREE

EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        FORWARDING,
        CHANGES,
        LOWER_BOUND,
        LOAD,
        HOPS,
        MULTICAST,
        RATE_FILTER,
        THROUGHPUT,
        BASE,
        DISTRIBUTION,
        LATENCY_LAW,
        SUBSCRIBE,
        STORM,
        ACCESS_RULES,
        RECOVERY,
        PIPELINE,
        TREE,
        SEALING,
        FORGED_FLOOD,
        ROTATIONS,
        LISTENERS,
    )
}

__all__ = ["EXPERIMENTS", "Comparison", "Experiment", "Parameter", "Result"]
