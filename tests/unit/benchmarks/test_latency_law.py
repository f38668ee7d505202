"""From measured clouds to the law that contracts are granted by."""

from __future__ import annotations

import json
from dataclasses import astuple
from pathlib import Path

import pytest

from benchmarks.experiments.latency_law import (
    cell_of,
    hops_in,
    law_of,
    measurements_in,
    measurements_text,
    single_measurements,
)
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


@pytest.mark.feature("S0-135")
def test_the_default_is_the_law_of_the_kept_measurements() -> None:
    """Until a quiet run on clouds is kept, that of one router between two plain ends."""
    kept = RESULTS / "latency-law.json"
    if kept.exists():
        cells = measurements_in(json.loads(kept.read_text(encoding="utf-8"))["measurements"])
        assert astuple(LATENCY_MODEL_DEFAULT) == pytest.approx(
            astuple(law_of(cells)), rel=0.02, abs=0.01
        )
        return
    one_router = json.loads((RESULTS / "forwarding.json").read_text(encoding="utf-8"))
    lone = LATENCY_MODEL_DEFAULT.predict([Hop()])
    aligned = LATENCY_MODEL_DEFAULT.predict([Hop(burst_events=1_000)])
    assert lone == pytest.approx(one_router["lone_p99_us"], rel=0.05)
    assert aligned == pytest.approx(one_router["pmu_aligned_p99_us"], rel=0.05)
