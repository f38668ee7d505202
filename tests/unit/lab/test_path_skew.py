"""The program about paths of different latency: its cells, and that it notices a lost event."""

from __future__ import annotations

from fractions import Fraction

import pytest

from gridstat.broker.capacity.allocation import Refusal
from gridstat.model.errors import LatencyNotSatisfiable, SkewNotSatisfiable
from gridstat.model.rate_law import Period
from gridstat.model.window_law import latency_us_recognised, window_slots
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


@pytest.mark.parametrize(("rate", "difference_ms"), BEYOND)
def test_only_what_the_windows_do_not_cover_may_be_refused(rate: int, difference_ms: int) -> None:
    refusal = Refusal.of(SkewNotSatisfiable, "too slow")
    assert Outcome(Cell(rate, difference_ms), refusal).holds
    assert not Outcome(Cell(rate, difference_ms), events=9, spared=1).holds
    for each in cells():
        assert Outcome(each, refusal).holds == ((each.rate, each.difference_ms) in BEYOND)


def test_every_cell_must_be_granted_or_must_be_refused() -> None:
    found = list(cells())
    assert all(cell.must_be_granted != cell.must_be_refused for cell in found)
    refused = {(cell.rate, cell.difference_ms) for cell in found if cell.must_be_refused}
    assert refused == set(BEYOND)


@pytest.mark.parametrize("rate", [30, 320, 321, 1_000, 1_200, 1_201, 4_000, 20_000, 100_000])
def test_the_own_arithmetic_agrees_with_the_law(rate: int) -> None:
    law_us = latency_us_recognised(window_slots(Period(1, rate)), Fraction(rate))
    assert round(1_000 * Cell(rate, 0).latency_ms_max) == pytest.approx(law_us, abs=2)


def test_the_grid_has_all_rates_from_30_to_4000_and_half_a_second_with_both_kinds_of_edges() -> (
    None
):
    found = {(cell.rate, cell.difference_ms, cell.edges) for cell in cells()}
    corners = {(rate, ms, edges) for rate in (30, 4_000) for ms in (0, 500) for edges in (1, 2)}
    assert corners <= found
