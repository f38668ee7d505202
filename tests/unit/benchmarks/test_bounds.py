"""Bounds of experiments, and the experiments that have them, with tiny parameters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from benchmarks.experiments import EXPERIMENTS, Experiment, Result
from benchmarks.experiments.experiment import Bound
from benchmarks.sealed_channels import backends_here
from gridstat.console.cli import experiment
from gridstat.console.cli.main import app

if TYPE_CHECKING:
    from benchmarks.experiments.experiment import Options, Progress


def bounded(value: float) -> Experiment:
    def measure(_: Options, progress: Progress) -> Result:
        progress(1.0, "done")
        return Result(figures={"cost": value}, bounds=(Bound("cost", value, 2.0),))

    return Experiment("bounded", "has a bound", (), measure)


@pytest.mark.parametrize(("value", "is_met"), [(2.0, True), (2.1, False), (float("nan"), False)])
def test_a_bound_is_met_up_to_its_limit(value: float, is_met: bool) -> None:
    assert Bound("cost", value, 2.0).is_met is is_met


@pytest.mark.parametrize(("value", "code"), [(1.5, 0), (2.5, 1)])
def test_a_run_that_misses_a_bound_fails_and_says_which(
    monkeypatch: pytest.MonkeyPatch, value: float, code: int
) -> None:
    monkeypatch.setattr(experiment, "load_experiments", lambda: {"bounded": bounded(value)})
    result = CliRunner().invoke(app, ["experiment", "run", "bounded", "--json"])
    assert result.exit_code == code
    facts = json.loads(result.stdout.splitlines()[-1])
    assert facts["cost_at_most"] == 2.0
    assert facts["cost_met"] == facts["bounds_met"] == ("no" if code else "yes")
    assert ("missed: cost is 2.5, at most 2 allowed" in result.stderr) == bool(code)


@pytest.mark.cluster
@pytest.mark.feature("S3-99", "S3-100")
def test_sealing_measures_every_library_of_the_machine_without_loss() -> None:
    """A hop that gets no processor for some milliseconds loses datagrams, so it may try again."""
    for _ in range(3):
        result = EXPERIMENTS["sealing"].run({"runs": 1, "pairs": 1, "seconds": 0.1}, _tell_nobody)
        losses = result.figures["lost"], result.figures["policed"]
        if losses == (0, 0):
            break
    assert losses == (0, 0)
    judged = {bound.figure for bound in result.bounds}
    for backend in backends_here():
        prefix = backend.replace("-", "_")
        for name in ("packed_ratio", "single_added_ns", "lone_ratio", "reject_ns"):
            assert f"{prefix}_{name}" in judged


@pytest.mark.cluster
def test_a_flood_of_forged_datagrams_is_rejected_and_costs_no_event() -> None:
    options = {"runs": 1, "seconds": 0.3, "forged_per_s": 5_000, "admitted_per_s": 2_000}
    figures = EXPERIMENTS["forged-flood"].run(options, _tell_nobody).figures
    assert figures["lost"] == 0
    assert figures["forged_sent"] == figures["forged_rejected"] != 0


def _tell_nobody(share: float, what: str) -> None:
    del share, what
