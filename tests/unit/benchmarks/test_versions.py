"""Comparison with another checkout: who runs when, which way a ratio goes, and what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from benchmarks.errors import BenchmarkError
from benchmarks.experiments import EXPERIMENTS
from benchmarks.experiments.subscribe import AGAINST_COSTS, AGAINST_SETTINGS
from benchmarks.versions import HERE, RATIO_MAX, checked, compared, run_once

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from benchmarks.experiments.experiment import Figure

COSTS = {"storm": "1/per_s", "lone": "lone_ms"}


@pytest.fixture
def before(tmp_path: Path) -> Path:
    (tmp_path / "benchmarks" / "experiments").mkdir(parents=True)
    (tmp_path / "gridstat" / "core").mkdir(parents=True)
    (tmp_path / "gridstat" / "core" / "_core.here.so").touch()
    return tmp_path


def tell_nobody(_: float, __: str) -> None:
    """Forget the progress."""


class Runs:
    """Runs of two checkouts that have the same figures each time."""

    def __init__(self, ours: dict[str, float], theirs: dict[str, float]) -> None:
        self.ours, self.theirs = ours, theirs
        self.order = ""

    def __call__(self, where: Path, name: str, _: Mapping[str, Figure]) -> dict[str, float]:
        assert name == "tree"
        self.order += "A" if where == HERE else "B"
        return self.ours if where == HERE else self.theirs


def test_both_take_turns_and_the_first_place_too(before: Path) -> None:
    run = Runs({"per_s": 100.0, "lone_ms": 2.0}, {"per_s": 100.0, "lone_ms": 2.0})
    figures, bounds = compared("tree", str(before), {}, COSTS, 4, tell_nobody, run)
    assert run.order == "ABBAABBA"
    assert figures == {"against_pairs": 4, "storm_ratio": 1.0, "lone_ratio": 1.0}
    assert all(bound.is_met for bound in bounds)
    assert {bound.at_most for bound in bounds} == {RATIO_MAX} == {1.05}


def test_a_slower_version_has_the_larger_ratio_whatever_the_figure_counts(before: Path) -> None:
    run = Runs({"per_s": 50.0, "lone_ms": 2.0}, {"per_s": 100.0, "lone_ms": 1.0})
    figures, bounds = compared("tree", str(before), {}, COSTS, 3, tell_nobody, run)
    assert (figures["storm_ratio"], figures["lone_ratio"]) == (2.0, 2.0)
    assert [bound.figure for bound in bounds if not bound.is_met] == ["storm_ratio", "lone_ratio"]


def test_a_folder_that_is_no_built_checkout_is_refused(before: Path, tmp_path: Path) -> None:
    with pytest.raises(BenchmarkError, match="no checkout"):
        checked(str(tmp_path / "nowhere"))
    (before / "gridstat" / "core" / "_core.here.so").unlink()
    with pytest.raises(BenchmarkError, match="not built"):
        checked(str(before))


def test_subscribe_runs_with_settings_that_it_has() -> None:
    known = {parameter.name for parameter in EXPERIMENTS["subscribe"].parameters}
    assert AGAINST_SETTINGS.keys() < known
    assert "against" in known
    assert "against" in {parameter.name for parameter in EXPERIMENTS["tree"].parameters}
    assert AGAINST_COSTS


@pytest.mark.timeout(120)
def test_a_checkout_is_measured_by_its_own_code() -> None:
    settings: dict[str, Figure] = {
        "runs": 1,
        "subscriptions": 12,
        "clouds": "4",
        "takeovers": 0,
        "branching": 2,
        "routers": 3,
        "pairs": 1,
    }
    figures = run_once(HERE, "tree", settings)
    assert figures["subscriptions_per_s_depth3"] > 0
    assert "takeover_s" not in figures
