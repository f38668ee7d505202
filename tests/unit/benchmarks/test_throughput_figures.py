"""Figures of the growing load: a step that was not carried is shown, and says so."""

from __future__ import annotations

from benchmarks.experiments.throughput import Ramp, Step, comparisons, figures
from benchmarks.statistics import Summary


def step(thousands: int, *, lost: int = 0, mean_us: float = 40.0) -> Step:
    latencies = Summary(1, mean_us, 0, 0, 0, 0, 0, 0, 0)
    return Step(latencies, 5.0, thousands * 1e3, thousands * 1e3, lost, policed=0)


def test_a_step_that_was_not_carried_is_marked_and_the_others_are_not() -> None:
    ramp: Ramp = {
        ("core", 1): [step(1)],
        ("core", 2): [step(2)],
        ("core", 3): [step(3, lost=7, mean_us=900.0)],
        ("reference", 1): [step(1, lost=1)],
    }
    found = figures(ramp)
    marked = {name for name in found if name.endswith("_saturated_by") and "k" in name}
    assert marked == {"k3_saturated_by", "reference_k1_saturated_by"}
    assert found["k3_saturated_by"] == found["saturated_by"] == "loss"
    assert (found["carried_per_s"], found["saturated_per_s"]) == (2_000, 3_000)
    assert found["saturated_lost"] == 7
    assert (found["per_router_mean_us"], "per_router_saturated_by" in found) == (40.0, False)


def test_a_comparison_with_a_step_that_was_not_carried_says_so() -> None:
    ramp: Ramp = {("core", 1): [step(1)], ("core", 2): [step(2, lost=7)]}
    reasons = {each.figure: each.reason for each in comparisons(ramp)}
    assert reasons["k2_mean_us"].startswith("ours was not carried (loss); source: ")
    assert reasons["k2_cpu_percent"].startswith("ours was not carried (loss); source: ")
    assert reasons["k1_mean_us"].startswith("source: ")


def test_a_machine_that_carries_nothing_says_of_which_step_its_latency_is() -> None:
    found = figures({("core", 1): [step(1, mean_us=20_000.0)]})
    assert found["per_router_mean_us"] == 20_000.0
    assert found["per_router_saturated_by"] == "latency"
    assert "carried_per_s" not in found


def test_of_several_runs_the_first_step_that_one_did_not_carry_counts() -> None:
    """The second run climbs on alone."""
    ramp: Ramp = {
        ("core", 1): [step(1), step(1)],
        ("core", 2): [step(2, lost=7), step(2)],
        ("core", 3): [step(3)],
        ("core", 4): [step(4, lost=9)],
    }
    found = figures(ramp)
    assert (found["carried_per_s"], found["saturated_per_s"]) == (1_000, 2_000)
    assert found["saturated_lost"] == 7
