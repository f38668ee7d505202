"""The experiments by name; `gridstat experiment run NAME` finds them here."""

from __future__ import annotations

from benchmarks.experiments.experiment import Comparison, Experiment, Parameter, Result
from benchmarks.experiments.forwarding import FORWARDING

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in (FORWARDING,)}

__all__ = ["EXPERIMENTS", "Comparison", "Experiment", "Parameter", "Result"]
