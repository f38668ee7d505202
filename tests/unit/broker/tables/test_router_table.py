"""One router's table: changes gather, go in bounded pieces and in order, and are confirmed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gridstat.broker.tables.confirmation import Confirmation
from gridstat.broker.tables.router_table import (
    UNCONFIRMED_MAX,
    WAITING_FOR_SESSION_MAX,
    RouterTable,
)
from gridstat.model.rate_law import Period
from gridstat.net.command.order_table import OrderTable
from gridstat.net.command.router_messages import (
    ChangeTable,
    ChannelOrder,
    PathOrder,
    SourceOrder,
    VariableOrder,
)
from gridstat.net.command.session_messages import MANY_MAX


def path(number: int, every: int = 1) -> PathOrder:
    return PathOrder(path_id=number, variable_id=1, channel_id=1, every=every)


def connected() -> RouterTable:
    table = RouterTable("c1/e0")
    table.begin_session(term=1, digest=0)
    return table


def waiting(done: list[str]) -> Confirmation:
    return Confirmation(lambda found: done.append(",".join(found.silent)), deadline_ns=0)


def apply(held: OrderTable, changes: list[ChangeTable]) -> None:
    for change in changes:
        held.apply(change)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_router_with_another_table_confirms_nothing_before_it_has_the_whole_one(by: int) -> None:
    table, confirmation = connected(), waiting([])
    table.put_path(path(1))
    table.await_confirmation(confirmation)
    (change,) = table.flush(term=1)
    assert not table.confirm(change.number, table.wanted.digest + by)
    assert confirmation.missing == {table.name}
    (whole,) = table.whole(term=1)
    are_in_step = [table.is_in_step]
    assert table.confirm(whole.number, table.wanted.digest)
    are_in_step.append(table.is_in_step)
    assert are_in_step == [False, True]
    assert not confirmation.missing


edits = st.lists(
    st.tuples(st.sampled_from("cspv"), st.integers(1, 6), st.integers(0, 2)), max_size=40
)


@given(st.lists(edits, max_size=5))
def test_whatever_changes_the_router_ends_with_exactly_what_is_wanted(
    rounds: list[list[tuple[str, int, int]]],
) -> None:
    table, held = connected(), OrderTable()
    for round_ in rounds:
        for kind, key, value in round_:
            _edit(table, kind, key, value)
        changes = table.flush(term=1)
        apply(held, changes)
        assert held.digest == table.wanted.digest
        for change in changes:
            assert table.confirm(change.number, held.digest)
    assert table.is_in_step


def _edit(table: RouterTable, kind: str, key: int, value: int) -> None:
    """Put an order with a value from 1 on, remove it for 0."""
    match kind, value:
        case "c", 0:
            table.remove_channel(key)
        case "c", _:
            table.put_channel(
                ChannelOrder(channel_id=key, to="c1/x", host="h", data_port=value, urgent_port=1)
            )
        case "s", 0:
            table.remove_source(key)
        case "s", _:
            table.put_source(SourceOrder(channel_id=key, sender="c1/x", back_channel=value))
        case "v", 0:
            table.remove_variable(key)
        case "v", _:
            table.put_variable(VariableOrder(variable_id=key, period=Period(1, value)))
        case "p", 0:
            table.remove_path(key)
        case _:
            table.put_path(path(key, value))


def test_a_large_change_goes_in_bounded_pieces_in_the_order_of_doing() -> None:
    table, held = connected(), OrderTable()
    for number in range(2_500):
        table.put_path(path(number))
        table.put_variable(VariableOrder(variable_id=number, period=None))
    changes = table.flush(term=1)
    assert [change.number for change in changes] == list(range(1, 7))
    assert all(len(change.paths) <= MANY_MAX for change in changes)
    assert all(not change.paths for change in changes[:3])  # Variables come before their paths.
    apply(held, changes)
    assert held.digest == table.wanted.digest

    for number in range(2_500):
        table.remove_path(number)
        table.remove_variable(number)
    changes = table.flush(term=1)
    assert all(not change.dropped for change in changes[:3])  # And go after them.
    apply(held, changes)
    assert held.digest == table.wanted.digest == 0


def test_what_is_put_as_it_is_already_changes_nothing() -> None:
    table = connected()
    assert table.put_path(path(1))
    table.flush(term=1)
    assert not table.put_path(path(1))
    assert not table.remove_path(2)
    assert table.flush(term=1) == []


def test_confirmation_comes_with_the_change_that_holds_it() -> None:
    table, done = connected(), list[str]()
    table.put_path(path(1))
    table.await_confirmation(first := waiting(done))
    (change,) = table.flush(term=1)
    digest = table.wanted.digest
    table.put_path(path(2))
    table.await_confirmation(second := waiting(done))
    (later,) = table.flush(term=1)
    assert (first.missing, second.missing) == ({"c1/e0"}, {"c1/e0"})

    table.confirm(change.number, digest)
    assert (first.has_ended, second.has_ended) == (True, False)
    table.confirm(later.number, table.wanted.digest)
    assert second.has_ended
    assert done == ["", ""]


def test_a_late_or_invented_number_confirms_nothing() -> None:
    table, done = connected(), list[str]()
    table.put_path(path(1))
    table.await_confirmation(waiting(done))
    (change,) = table.flush(term=1)
    assert table.confirm(change.number + 5, 0)
    assert done == []


def test_nobody_is_told_of_a_table_that_is_not_what_was_sent() -> None:
    table, done = connected(), list[str]()
    table.put_path(path(1))
    table.await_confirmation(waiting(done))
    (refused,) = table.flush(term=1)
    table.put_path(path(2))
    (later,) = table.flush(term=1)  # On its way when the first one is refused.
    (whole,) = table.whole(term=1)

    assert table.confirm(later.number, 123)  # Overtaken by the whole table.
    assert done == []
    assert not table.confirm(whole.number, 123)
    assert done == []
    (again,) = table.whole(term=1)
    assert table.confirm(again.number, table.wanted.digest)
    assert done == [""]
    assert refused.number < later.number < whole.number < again.number


def test_no_more_than_a_few_changes_are_on_their_way() -> None:
    table = connected()
    for number in range(UNCONFIRMED_MAX):
        table.put_path(path(number))
        assert table.flush(term=1)
    table.put_path(path(99))
    assert table.flush(term=1) == []
    table.confirm(1, table.wanted.digest)
    assert table.flush(term=1)


def test_a_lost_session_turns_missing_into_absent_and_a_digest_confirms() -> None:
    table, done = connected(), list[str]()
    table.put_path(path(1))
    found = Confirmation(lambda _: done.append("over"), 0, judge=lambda silent: not silent)
    table.await_confirmation(found)
    table.flush(term=1)
    table.end_session()
    assert (found.missing, found.absent, done) == (set(), {"c1/e0"}, [])
    assert table.begin_session(term=1, digest=table.wanted.digest) == []
    assert done == ["over"]


def test_a_new_session_with_another_digest_begins_anew() -> None:
    table, done = connected(), list[str]()
    table.end_session()
    table.put_path(path(1))
    found = Confirmation(lambda _: done.append("over"), 0, judge=lambda silent: not silent)
    table.await_confirmation(found)
    (change,) = table.begin_session(term=2, digest=77)
    assert (change.begins_anew, change.is_last, change.term) == (True, True, 2)
    assert done == []
    assert table.confirm(change.number, table.wanted.digest)
    assert done == ["over"]


def test_what_waits_for_an_absent_router_does_not_pile_up() -> None:
    table = RouterTable("c1/e0")
    for _ in range(3 * WAITING_FOR_SESSION_MAX):
        found = Confirmation(lambda _: None, 0)
        table.await_confirmation(found)
        found.end_if_confirmed()  # Without a judge an absent router does not matter.
    assert len(table._waiting_for_session) <= WAITING_FOR_SESSION_MAX + 1
