"""Table changes are taken once, in order; whole tables only when all of them is there."""

from __future__ import annotations

import pytest

from gridstat.model.errors import LimitReached, Malformed
from gridstat.model.rate_law import Period
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    TableChanged,
    TableRefused,
    VariableOrder,
)
from gridstat.router.agent_events import ApplyTable, TableFailed
from gridstat.router.table_intake import TableIntake

EAST = ChannelOrder(channel_id=7, to="c1/e1", host="::1", data_port=1, urgent_port=2)
VOLTAGE = VariableOrder(variable_id=1, period=Period(1, 60))
PATH = PathOrder(path_id=65_536, variable_id=1, channel_id=7)


@pytest.fixture
def intake() -> TableIntake:
    return TableIntake()


def wanted() -> OrderTable:
    table = OrderTable()
    table.apply(
        ChangeTable(term=1, number=0, channels=(EAST,), variables=(VOLTAGE,), paths=(PATH,))
    )
    return table


def test_a_change_is_acknowledged_with_its_digest_once_the_core_has_it(
    intake: TableIntake,
) -> None:
    said = intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    after_first = intake.held.digest
    intake.take(ChangeTable(term=1, number=2, variables=(VOLTAGE,)))
    assert isinstance(said, ApplyTable)
    assert intake.applied(said.number) == TableChanged(number=1, digest=after_first)
    assert intake.applied(2) == TableChanged(number=2, digest=intake.held.digest)
    assert intake.applied(2) is None


def test_one_acknowledgement_covers_all_changes_that_were_committed_together(
    intake: TableIntake,
) -> None:
    intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    intake.take(ChangeTable(term=1, number=2, variables=(VOLTAGE,)))
    assert intake.applied(2) == TableChanged(number=2, digest=intake.held.digest)


def test_a_whole_table_waits_for_its_last_piece(intake: TableIntake) -> None:
    pieces = list(wanted().whole(term=1, number=1))
    assert len(pieces) == 3
    assert [intake.take(piece) for piece in pieces[:-1]] == [None, None]
    assert len(intake.held) == 0
    said = intake.take(pieces[-1])
    assert isinstance(said, ApplyTable)
    assert said.change.begins_anew
    assert said.change.channels == (EAST,)
    assert said.change.paths == (PATH,)
    assert intake.held.digest == wanted().digest


def test_half_a_table_is_forgotten_with_its_session(intake: TableIntake) -> None:
    intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    before = intake.held.digest
    [first, *_] = wanted().whole(term=1, number=2)
    intake.take(first)
    intake.begin_session()
    assert intake.held.digest == before
    assert isinstance(intake.take(ChangeTable(term=1, number=1)), ApplyTable)


@pytest.mark.parametrize("number", [0, 1, 3, -5])
def test_a_gap_or_a_repeated_number_is_refused(intake: TableIntake, number: int) -> None:
    intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    before = intake.held.digest
    said = intake.take(ChangeTable(term=1, number=number, variables=(VOLTAGE,)))
    assert isinstance(said, TableRefused)
    assert (said.number, said.code) == (number, Malformed.code)
    assert intake.held.digest == before


def test_after_a_refusal_only_a_whole_table_is_taken(intake: TableIntake) -> None:
    assert isinstance(intake.take(ChangeTable(term=1, number=2)), TableRefused)
    assert intake.take(ChangeTable(term=1, number=3, channels=(EAST,))) is None
    said = None
    for piece in wanted().whole(term=1, number=4):
        said = intake.take(piece)
    assert isinstance(said, ApplyTable)
    assert intake.applied(said.number) == TableChanged(number=6, digest=wanted().digest)
    assert isinstance(intake.take(ChangeTable(term=1, number=7)), ApplyTable)


def test_an_acknowledgement_of_an_earlier_session_is_not_said_in_this_one(
    intake: TableIntake,
) -> None:
    old = intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    intake.begin_session()
    new = intake.take(ChangeTable(term=1, number=1, variables=(VOLTAGE,)))
    assert isinstance(old, ApplyTable)
    assert isinstance(new, ApplyTable)
    assert intake.applied(old.number) is None
    assert intake.applied(new.number) == TableChanged(number=1, digest=intake.held.digest)


def test_a_table_that_the_core_cannot_take_is_refused_and_never_reported_as_held(
    intake: TableIntake,
) -> None:
    said = intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    assert isinstance(said, ApplyTable)
    refused = intake.failed(TableFailed(said.number, LimitReached.code, "full"))
    assert refused == TableRefused(number=1, code=LimitReached.code, reason="full")
    assert intake.reported_digest != intake.held.digest
    assert intake.applied(said.number) is None
    for piece in wanted().whole(term=1, number=2):
        intake.take(piece)
    assert intake.reported_digest == intake.held.digest == wanted().digest


def test_a_table_of_which_the_core_refuses_a_row_names_it_and_is_never_reported_as_held(
    intake: TableIntake,
) -> None:
    said = intake.take(ChangeTable(term=1, number=1, variables=(VOLTAGE,)))
    assert isinstance(said, ApplyTable)
    refused = {VOLTAGE.variable_id: "no room"}
    confirmed = TableChanged(number=1, digest=intake.held.digest, refused=refused)
    assert intake.applied(said.number, refused) == confirmed
    assert intake.reported_digest != intake.held.digest
    said = intake.take(ChangeTable(term=1, number=2, channels=(EAST,)))
    assert isinstance(said, ApplyTable)
    assert intake.applied(said.number) == TableChanged(number=2, digest=intake.held.digest)
    assert intake.reported_digest == intake.held.digest


def test_what_the_core_refuses_after_all_was_confirmed_is_told_to_the_broker(
    intake: TableIntake,
) -> None:
    said = intake.take(ChangeTable(term=1, number=1, channels=(EAST,)))
    assert isinstance(said, ApplyTable)
    intake.applied(said.number)
    late = TableFailed(0, LimitReached.code, "full")
    assert intake.failed(late) == TableRefused(number=1, code=LimitReached.code, reason="full")
    assert intake.failed(late) is None, "the whole table is on its way"


def test_a_table_beyond_the_bound_is_refused() -> None:
    intake = TableIntake(orders_max=2)
    said = [intake.take(piece) for piece in wanted().whole(term=1, number=1)]
    assert isinstance(said[-1], TableRefused)
    assert said[-1].code == LimitReached.code
    assert len(intake.held) == 0
