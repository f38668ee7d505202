"""Table of all commanded paths, which reports only changes."""

from __future__ import annotations

import pytest

from gridstat.model.errors import Misuse, UnknownName
from gridstat.model.identifiers import ChannelId, PathId, VariableId
from gridstat.model.rate_law import Period
from gridstat.router import CarriedVariable, Path, PathTable

VOLTAGE = VariableId(1)
ANGLE = VariableId(2)
EAST = ChannelId(7)
FIRST, SECOND = PathId(1), PathId(2)


@pytest.fixture
def table() -> PathTable:
    table = PathTable()
    table.carry(CarriedVariable(VOLTAGE, Period(1, 30)))
    table.carry(CarriedVariable(ANGLE, Period(1, 30)))
    return table


def test_a_new_path_touches_its_variable(table: PathTable) -> None:
    assert table.set_up(FIRST, Path(VOLTAGE, EAST)) == {VOLTAGE}
    assert table.paths_of(VOLTAGE) == (Path(VOLTAGE, EAST),)


def test_the_same_command_heard_twice_changes_nothing(table: PathTable) -> None:
    table.set_up(FIRST, Path(VOLTAGE, EAST))
    assert table.set_up(FIRST, Path(VOLTAGE, EAST)) == frozenset()
    assert len(table) == 1


def test_two_like_subscriptions_are_two_paths(table: PathTable) -> None:
    table.set_up(FIRST, Path(VOLTAGE, EAST))
    table.set_up(SECOND, Path(VOLTAGE, EAST))
    table.tear_down(FIRST)
    assert table.paths_of(VOLTAGE) == (Path(VOLTAGE, EAST),)


def test_a_channel_counts_the_paths_that_lead_to_it_now(table: PathTable) -> None:
    table.set_up(FIRST, Path(VOLTAGE, EAST))
    table.set_up(SECOND, Path(ANGLE, EAST))
    assert table.count_on(EAST) == 2
    table.set_up(FIRST, Path(VOLTAGE, ChannelId(8)))
    assert (table.count_on(EAST), table.count_on(ChannelId(8))) == (1, 1)
    table.tear_down(SECOND)
    assert table.count_on(EAST) == 0


def test_a_path_that_moves_to_another_variable_touches_both(table: PathTable) -> None:
    table.set_up(FIRST, Path(VOLTAGE, EAST))
    assert table.set_up(FIRST, Path(ANGLE, EAST)) == {VOLTAGE, ANGLE}
    assert table.paths_of(VOLTAGE) == ()


def test_tearing_down_what_is_not_there_touches_nothing(table: PathTable) -> None:
    assert table.tear_down(FIRST) == frozenset()


def test_a_path_of_a_variable_that_is_not_carried_is_refused(table: PathTable) -> None:
    with pytest.raises(UnknownName, match="not carried"):
        table.set_up(FIRST, Path(VariableId(99), EAST))


def test_a_variable_with_paths_is_not_dropped(table: PathTable) -> None:
    table.set_up(FIRST, Path(VOLTAGE, EAST))
    with pytest.raises(Misuse, match="1 paths"):
        table.drop(VOLTAGE)
    table.tear_down(FIRST)
    assert table.drop(VOLTAGE) == {VOLTAGE}
    assert table.drop(VOLTAGE) == frozenset()


def test_carrying_a_variable_as_before_touches_nothing(table: PathTable) -> None:
    assert table.carry(CarriedVariable(VOLTAGE, Period(1, 30))) == frozenset()
    assert table.carry(CarriedVariable(VOLTAGE, Period(1, 60))) == {VOLTAGE}
