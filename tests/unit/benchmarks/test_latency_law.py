"""Fit of the law that contracts are granted by, from measured clouds."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from benchmarks.experiments.latency_law import (
    ONE_ROUTER,
    cell_of,
    cells_of,
    hops_in,
    law_of,
    measurements_in,
    measurements_text,
    single_measurements,
)
from benchmarks.statistics import summary_of
from gridstat.model.latency_model import LATENCY_MODEL_DEFAULT, Hop

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
CELLS = {
    (1, 200.0, 0): [290.0, 295.0, 300.0, 305.0, 310.0, 9_000.0],
    (1, 20_000.0, 0): [310.0, 315.0, 320.0, 325.0, 330.0, 335.0],
    (3, 600.0, 2): [480.0, 485.0, 490.0, 495.0, 500.0, 505.0],
    (3, 36_600.0, 122): [780.0, 790.0, 800.0, 810.0, 820.0, 830.0],
}


def test_a_path_and_its_sums_are_the_same_to_the_law() -> None:
    hops = [Hop(100.0, 3), Hop(50.5, 0), Hop(0.0, 4)]
    assert cell_of(hops) == (3, 150.5, 7)
    assert cell_of(hops_in((3, 150.5, 7))) == (3, 150.5, 7)


def test_what_is_kept_of_a_run_is_what_was_measured() -> None:
    assert measurements_in(measurements_text(CELLS)) == CELLS


def test_a_stall_in_one_run_does_not_make_the_law() -> None:
    model = law_of(CELLS)
    singles = single_measurements(CELLS)
    kept = [one.latency_us <= model.predict(one.hops) for one in singles]
    assert sum(kept) == 23
    calm = law_of({**CELLS, (1, 200.0, 0): [290.0, 300.0, 310.0]})
    assert model.predict([Hop()]) < 2 * calm.predict([Hop()])


def test_runs_are_gathered_by_what_the_law_sees_of_their_paths() -> None:
    one, other = summary_of(np.array([1_000] * 9 + [5_000])), summary_of(np.array([2_000]))
    taken = [((1, 0.0, 0), one), ((2, 0.0, 1), other), ((1, 0.0, 0), other)]
    assert cells_of(taken, "p50_us") == {(1, 0.0, 0): [1.0, 2.0], (2, 0.0, 1): [2.0]}


def test_no_part_of_the_law_counts_for_less_than_one_router_showed() -> None:
    flat = {(1, 200.0, 0): [300.0], (1, 20_000.0, 100): [290.0], (3, 600.0, 2): [500.0]}
    model = law_of(flat)
    assert model.us_per_1000_events_per_s == ONE_ROUTER.us_per_1000_events_per_s
    assert model.us_per_burst_event == ONE_ROUTER.us_per_burst_event
    fast = {(1, 200.0, 0): [60.0], (2, 200.0, 0): [80.0], (3, 200.0, 0): [100.0]}
    assert astuple(law_of(fast)) == pytest.approx(astuple(ONE_ROUTER), rel=0.05)
    steep = {(1, 200.0, 0): [300.0], (1, 200.0, 100): [900.0], (2, 200.0, 0): [400.0]}
    assert law_of(steep).us_per_burst_event > 5.0


def test_what_one_router_showed_is_what_was_measured_of_it() -> None:
    one_router = json.loads((RESULTS / "forwarding.json").read_text(encoding="utf-8"))
    lone = ONE_ROUTER.predict([Hop()])
    aligned = ONE_ROUTER.predict([Hop(burst_events=1_000)])
    assert lone == pytest.approx(one_router["lone_p99_us"], rel=0.05)
    assert aligned == pytest.approx(one_router["pmu_aligned_p99_us"], rel=0.05)


@pytest.mark.feature("S0-135")
def test_the_default_is_the_law_of_the_kept_measurements() -> None:
    kept = json.loads((RESULTS / "latency-law.json").read_text(encoding="utf-8"))
    found = law_of(measurements_in(kept["measurements"]))
    assert astuple(LATENCY_MODEL_DEFAULT) == pytest.approx(astuple(found), rel=0.02, abs=0.01)


@pytest.mark.feature("S0-135")
def test_no_path_is_predicted_to_be_faster_than_one_router_made_believe() -> None:
    """Contracts were granted by that law before there was one of clouds."""
    for routers in range(1, 8):
        for hop in (Hop(), Hop(200.0, 2), Hop(50_000.0, 500)):
            path = [hop] * routers
            assert LATENCY_MODEL_DEFAULT.predict(path) >= ONE_ROUTER.predict(path)
