"""Fresh seeds of clouds and trees, others in each run of the tests, and how they are reported."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from lab.simulation import fresh
from lab.simulation.campaign import ONE_CLOUD, Simulation
from lab.simulation.fresh import FRESH_MIN, VARIABLE, first_fresh_seed, run_fresh
from lab.simulation.run import run_seed
from lab.simulation.tree.__main__ import TREES

if TYPE_CHECKING:
    from lab.simulation.run import Verdict

COUNT = 6
TREES_COUNT = 2
"""Fewer, as some 3 in 1,000 fresh trees still find something: a run must not fail by that."""


@pytest.mark.parametrize(
    ("of", "count"),
    [(ONE_CLOUD, COUNT), (TREES, TREES_COUNT)],
    ids=["lab.simulation", "lab.simulation.tree"],
)
def test_every_property_holds_in_fresh_seeds(of: Simulation, count: int) -> None:
    failures = run_fresh(count, of=of)
    assert not failures, "\n\n".join(failures)


def test_every_run_has_other_seeds_unless_one_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    drawn = {first_fresh_seed() for _ in range(4)}
    assert len(drawn) == 4
    assert min(drawn) >= FRESH_MIN
    monkeypatch.setenv(VARIABLE, "4711")
    assert first_fresh_seed() == 4711


def broken(seed: int, *, bug: str = "", is_traced: bool = False) -> Verdict:
    del bug
    return run_seed(seed, bug="skip-the-second-edge", is_traced=is_traced)


def test_a_fresh_failure_says_how_to_repeat_and_to_replay_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "3")
    said: list[str] = []
    (failure,) = run_fresh(1, of=Simulation("lab.simulation", broken, {}), say=said.append)
    assert said[0] == f"fresh seeds 3 to 3; the same again: {VARIABLE}=3"
    assert said[1] == "replay: python -m lab.simulation --seed 3 --trace"
    assert failure.startswith("seed 3: ")
    assert failure.endswith(said[1])


def test_no_fresh_seed_begins_after_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fresh, "WITHIN_S", 0.0)
    said: list[str] = []
    assert run_fresh(COUNT, say=said.append) == []
    assert said[-1].startswith("stopped before seed ")
