"""Seeds that found something once; each finding has a test of its own beside what was mended."""

from __future__ import annotations

import pytest

from lab.simulation.run import run_seed


@pytest.mark.parametrize(
    "seed", [2563, 2601, 2993, 3093, 3145, 3631, 3645, 3707, 4236, 4242], ids=str
)
def test_a_seed_that_failed_once_holds(seed: int) -> None:
    assert run_seed(seed).words == ""
