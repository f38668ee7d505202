"""A slow path over a real relay replaces what a fast one loses."""

from __future__ import annotations

import pytest

from lab.path_skew import RELAYED, Cell
from lab.relayed_skew import run_relayed

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.parametrize(("rate", "difference_ms"), RELAYED)
def test_nothing_is_lost_that_the_slow_path_has_delivered(
    rate: int, difference_ms: int, edges: int
) -> None:
    outcome = run_relayed(Cell(rate, difference_ms, edges), seed=5)
    assert outcome.holds, str(outcome)
