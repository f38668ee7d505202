"""The program about paths of different latency: its cells, and that it notices a lost event."""

from __future__ import annotations

import pytest

from gridstat.broker.capacity.allocation import Refusal
from gridstat.model.errors import LatencyNotSatisfiable, SkewNotSatisfiable
from lab.path_skew import BEYOND, Cell, Outcome, cells, run


@pytest.mark.parametrize("edges", [1, 2])
@pytest.mark.parametrize(("rate", "difference_ms"), [(30, 500), (1_000, 300), (4_000, 80)])
def test_no_event_is_lost_while_the_slow_path_has_them_all(
    rate: int, difference_ms: int, edges: int
) -> None:
    outcome = run(Cell(rate, difference_ms, edges), seed=3)
    assert outcome.holds, str(outcome)
    assert outcome.refusal is None
    assert outcome.spared > 0


@pytest.mark.parametrize(("rate", "difference_ms"), BEYOND)
def test_what_the_windows_do_not_cover_is_refused(rate: int, difference_ms: int) -> None:
    outcome = run(Cell(rate, difference_ms), seed=3)
    assert outcome.refusal is not None
    assert outcome.holds, str(outcome)


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(Cell(30, 0), events=9, spared=1, lost=1),
        Outcome(Cell(30, 0), events=9, spared=1, too_old=1),
        Outcome(Cell(30, 0), events=9, spared=0),
        Outcome(Cell(30, 0), Refusal.of(LatencyNotSatisfiable, "too slow")),
    ],
)
def test_a_lost_event_an_old_copy_or_another_reason_is_a_failure(outcome: Outcome) -> None:
    assert not outcome.holds


def test_the_right_refusal_is_none() -> None:
    assert Outcome(Cell(30, 0), Refusal.of(SkewNotSatisfiable, "too slow")).holds


def test_the_grid_has_all_rates_from_30_to_4000_and_half_a_second_with_both_kinds_of_edges() -> (
    None
):
    found = {(cell.rate, cell.difference_ms, cell.edges) for cell in cells()}
    corners = {(rate, ms, edges) for rate in (30, 4_000) for ms in (0, 500) for edges in (1, 2)}
    assert corners <= found
