"""Seeds that found something once; each finding has a test of its own beside what was mended.

They failed under earlier workloads. Applications ask for more kinds of quality since then, so these
seeds run other scenarios now: they are seeds like any other, and reproduce none of those findings.
"""

from __future__ import annotations

import pytest

from lab.simulation.run import run_seed


@pytest.mark.parametrize(
    "seed", [2563, 2601, 2993, 3093, 3145, 3631, 3645, 3707, 4236, 4242], ids=str
)
def test_a_seed_that_failed_under_an_earlier_workload_holds(seed: int) -> None:
    assert run_seed(seed).complaint == ""
