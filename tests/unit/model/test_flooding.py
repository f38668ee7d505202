"""The laws of limited flooding: which terms hold in a mode, and the orders to routers."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LayoutError
from gridstat.model.flooding import (
    FloodTerm,
    beside,
    by_scope,
    checked_every,
    checked_modes,
    dropped_copies,
    everys_of,
    in_force,
    in_scope,
    overrides,
    requested_modes,
    without,
)

OWN = {1: FloodTerm(2, 3), 2: FloodTerm(2)}
ABOVE = {2: FloodTerm(0, 5), 4: FloodTerm(1)}


def test_in_each_mode_the_parent_has_the_last_word() -> None:
    assert in_force(OWN, ABOVE) == {1: FloodTerm(2, 3), 2: FloodTerm(0, 5), 4: FloodTerm(1)}
    assert in_force(OWN, {}) == OWN


def test_a_parents_flood_for_all_modes_is_the_only_one() -> None:
    everywhere = {0: FloodTerm(0, 10), 3: FloodTerm(0)}
    assert in_force(OWN, everywhere) == everywhere
    assert beside(OWN, everywhere) == {}
    assert overrides(0, OWN, everywhere)
    assert not overrides(3, OWN, everywhere)
    assert not overrides(0, {}, everywhere)


def test_a_request_for_all_modes_holds_beside_a_parents_flood_for_one() -> None:
    """The baseline is always active: no row could say all modes but one."""
    own = {0: FloodTerm(2, 3), 2: FloodTerm(2)}
    assert in_force(own, ABOVE) == {0: FloodTerm(2, 3), **ABOVE}
    assert beside(own, ABOVE) == {0: FloodTerm(2, 3)}
    assert overrides(2, own, ABOVE)
    assert not overrides(4, own, ABOVE)


def test_some_modes_end_or_all_of_them() -> None:
    assert without(OWN, (1,)) == {2: FloodTerm(2)}
    assert without(OWN, (1, 2)) == without(OWN, ()) == {}


def test_routers_are_told_each_term_once_with_its_modes() -> None:
    terms = {1: FloodTerm(2), 2: FloodTerm(0, 5), 4: FloodTerm(2)}
    assert by_scope(terms) == [(FloodTerm(0, 5), 0b100), (FloodTerm(2), 0b10010)]
    assert everys_of(terms) == {1: 1, 2: 5, 4: 1}


def test_a_channel_is_in_the_scope_of_its_own_level_and_of_those_above() -> None:
    assert in_scope(ABOVE, 0) == {2: FloodTerm(0, 5)}
    assert in_scope(ABOVE, 1) == in_scope(ABOVE, 7) == ABOVE


def test_modes_and_divisors_have_bounds() -> None:
    assert checked_modes((3, 1, 3)) == (1, 3)
    assert checked_modes(()) == (0,)
    assert checked_every(7) == 7
    for modes in ((64,), (-1,)):
        with pytest.raises(LayoutError):
            checked_modes(modes)
    with pytest.raises(LayoutError):
        checked_every(0)


def test_a_person_says_all_modes_by_naming_none_and_not_by_0() -> None:
    assert requested_modes(()) == ()
    assert requested_modes((3, 1, 3)) == (1, 3)
    for modes in ((0,), (0, 2), (64,), (10**30,)):
        with pytest.raises(LayoutError, match="there are modes 1 to 63"):
            requested_modes(modes)


def test_the_golden_topology_drops_six() -> None:
    assert dropped_copies(17, 11) == 6
