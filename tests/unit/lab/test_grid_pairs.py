"""Pairs all over a grid, and the brokers on the way between their clouds."""

from __future__ import annotations

from lab.grid_pairs import brokers_on, far_pairs
from lab.national_grid import GridSize, national_grid

GRID = national_grid(GridSize(27, 5, levels=4, branching=3))


def test_far_pairs_are_drawn_over_the_whole_grid_and_the_same_each_time() -> None:
    pairs = far_pairs(GRID, 12)
    assert len(set(pairs)) == 12
    assert all(one != other for one, other in pairs)
    assert pairs == far_pairs(GRID, 12) != far_pairs(GRID, 12, seed=2)
    owners = {GRID.plan.common(*pair) for pair in pairs}
    assert "root" in owners
    assert len(owners) > 1


def test_pairs_whose_way_is_too_long_are_not_drawn() -> None:
    flat = national_grid(GridSize(100, 5, levels=2))
    for one, other in far_pairs(flat, 20):
        apart = abs(int(one[1:]) - int(other[1:]))
        assert min(apart, 100 - apart) < 24


def test_brokers_on_a_way_are_those_below_its_owner_and_itself() -> None:
    assert brokers_on(GRID.plan, ["c0", "c1"]) == {"c0", "c1", "b3x0"}
    assert brokers_on(GRID.plan, ["c0", "c3"]) == {"c0", "c3", "b3x0", "b3x1", "b2x0"}
