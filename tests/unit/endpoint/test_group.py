"""Groups as applications hold them: members, sets, names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.connection import Connection
from gridstat.endpoint.subscriber import Subscription
from gridstat.model.errors import (
    ChannelFull,
    GroupMismatch,
    LayoutError,
    Misuse,
    NoSuchVariable,
)
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    FindVariables,
    FoundOutcome,
    PublicationChanged,
    RefusedOutcome,
    Subscribe,
    Unsubscribe,
)
from tests.unit.endpoint.paper_grid import (
    MS,
    WALL_AHEAD_NS,
    PaperGrid,
    PaperLink,
    granted,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gridstat.endpoint.group import Group
    from gridstat.endpoint.group_sets import GroupSet
    from gridstat.model.status import StatusVariable

NORTH = variable("c1/north/angle", 1)
SOUTH = variable("c1/south/angle", 2, period=Period(1, 50))
ODD = variable("c1/odd/angle", 3, period=Period(1, 60))
TENTH = Period(1, 10)


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


@pytest.fixture
def connection(grid: PaperGrid) -> Connection:
    return Connection(PaperLink(grid))  # type: ignore[arg-type]


def add(grid: PaperGrid, group: Group, of: StatusVariable, number: int) -> None:
    assert of.period is not None
    every = int(TENTH.period_ns / of.period.period_ns)
    grid.cloud.ready.append((FoundOutcome(variables=(of,)),))
    grid.cloud.ready.append((granted(of, number, every=every),))
    group.add(of.name)


def angles(connection: Connection, history: int = 3) -> Group:
    return connection.group("angles", interval=TENTH, latency_ms=50, history=history)


def first_set_ms() -> int:
    """The first group instant at or behind 100 ms on the tests' clock."""
    past = (100 * MS + WALL_AHEAD_NS) % (100 * MS)
    return 100 + (100 - past // MS) % 100


@pytest.mark.feature("S0-42", "S0-43")
def test_members_of_different_periods_form_sets(grid: PaperGrid, connection: Connection) -> None:
    group = angles(connection)
    complete: list[GroupSet] = []
    group.on_complete(complete.append)
    add(grid, group, NORTH, 1)
    add(grid, group, SOUTH, 2)
    assert group.latest() is None
    at_ms = first_set_ms()
    grid.send(NORTH, (at_ms, 1.0), (at_ms + 10, 1.5))
    assert complete == []
    grid.send(SOUTH, (at_ms + 3, 2.0))
    assert [found.values for found in complete] == [{NORTH.name: 1.0, SOUTH.name: 2.0}]
    latest = group.latest()
    assert latest is not None
    assert latest.values == complete[0].values
    assert (group.completed, group.incomplete) == (1, 0)


@pytest.mark.feature("S0-43")
def test_a_set_that_misses_its_deadline_is_never_shown(
    grid: PaperGrid, connection: Connection
) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    add(grid, group, SOUTH, 2)
    at_ms = first_set_ms()
    grid.send(NORTH, (at_ms, 1.0))
    grid.wait_until(at_ms + 60)
    grid.send(SOUTH, (at_ms, 2.0), latency_ms=70)
    assert group.latest() is None
    assert (group.completed, group.incomplete) == (0, 1)


@pytest.mark.feature("S0-44")
def test_the_history_is_read_newest_first(grid: PaperGrid, connection: Connection) -> None:
    group = angles(connection, history=2)
    add(grid, group, NORTH, 1)
    at_ms = first_set_ms()
    for number in range(4):
        grid.send(NORTH, (at_ms + 100 * number, float(number)))
    assert [found.values[NORTH.name] for found in group.latest(5)] == [3.0, 2.0]


@pytest.mark.feature("S0-42")
def test_members_come_and_go_while_it_runs(grid: PaperGrid, connection: Connection) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    add(grid, group, SOUTH, 2)
    group.remove(SOUTH.name)
    assert grid.cloud.asked[-1] == Unsubscribe(subscription_ids=(2,))
    assert group.members == (NORTH.name,)
    at_ms = first_set_ms()
    grid.send(NORTH, (at_ms, 1.0))
    latest = group.latest()
    assert latest is not None
    assert set(latest.deliveries) == {NORTH.name}
    with pytest.raises(Misuse, match="is no member"):
        group.remove(SOUTH.name)


@pytest.mark.feature("S0-45")
def test_closing_a_group_ends_its_members_subscriptions(
    grid: PaperGrid, connection: Connection
) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    add(grid, group, SOUTH, 2)
    group.close()
    group.close()
    ended = [each for each in grid.cloud.asked if isinstance(each, Unsubscribe)]
    assert [each.subscription_ids for each in ended] == [(1,), (2,)]
    assert grid.receiver.expected == {}
    with pytest.raises(Misuse, match="is closed"):
        group.add(NORTH.name)


@pytest.mark.parametrize("end", [Connection.unsubscribe_all, Connection.close])
def test_what_ends_all_subscriptions_ends_groups_too(
    grid: PaperGrid, connection: Connection, end: Callable[[Connection], None]
) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    end(connection)
    assert group.members == ()
    assert group not in grid.deliverer._timed
    with pytest.raises(Misuse, match="is closed"):
        group.add(NORTH.name)


def test_a_coroutine_function_for_complete_sets_is_refused(connection: Connection) -> None:
    async def show(_: object) -> None:
        raise AssertionError("never awaited")

    with pytest.raises(Misuse, match="on_complete is a coroutine function"):
        angles(connection).on_complete(show)


def test_a_list_that_was_cut_short_is_not_taken_for_the_whole(
    grid: PaperGrid, connection: Connection
) -> None:
    grid.cloud.ready.append((FoundOutcome(variables=(NORTH,), is_complete=False),))
    grid.cloud.ready.append((FoundOutcome(variables=(SOUTH,)),))
    assert connection.find("c1/**") == [NORTH, SOUTH]
    assert grid.cloud.asked[-1] == FindVariables(pattern="c1/**", after=NORTH.name)


@pytest.mark.feature("S0-46")
def test_a_group_name_that_is_taken_gives_no_second_group(connection: Connection) -> None:
    group = angles(connection)
    with pytest.raises(GroupMismatch, match="there is a group angles already"):
        angles(connection)
    group.close()
    assert angles(connection).members == ()


def test_a_member_that_fits_no_set_is_refused_with_a_proposal(
    grid: PaperGrid, connection: Connection
) -> None:
    group = connection.group("angles", interval=Period(1, 50), latency_ms=50)
    grid.cloud.ready.append((FoundOutcome(variables=(ODD,)),))
    with pytest.raises(GroupMismatch) as refused:
        group.add(ODD.name)
    assert "1/30 s" in refused.value.hint
    assert not any(isinstance(each, Subscribe) for each in grid.cloud.asked)


def test_a_member_is_refused_for_the_clouds_reasons_too(
    grid: PaperGrid, connection: Connection
) -> None:
    group = angles(connection)
    grid.cloud.ready.append((FoundOutcome(variables=()),))
    with pytest.raises(NoSuchVariable):
        group.add(NORTH.name)
    grid.cloud.ready.append((FoundOutcome(variables=(variable(period=None),)),))
    with pytest.raises(GroupMismatch, match="aperiodic"):
        group.add("c1/a/v")
    grid.cloud.ready.append((FoundOutcome(variables=(NORTH,)),))
    grid.cloud.ready.append((RefusedOutcome(code=ChannelFull.code, reason="no room"),))
    with pytest.raises(ChannelFull):
        group.add(NORTH.name)
    assert group.members == ()


def test_the_groups_interval_is_asked_for_exactly(grid: PaperGrid, connection: Connection) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    command = grid.cloud.asked[-1]
    assert isinstance(command, Subscribe)
    (request,) = command.subscriptions
    assert request.qos.modes[0].interval == TENTH
    assert request.qos.modes[0].latency_us == 50_000
    with pytest.raises(Misuse, match="the group's own option"):
        group.add(SOUTH.name, rate=5)
    with pytest.raises(GroupMismatch, match="already"):
        group.add(NORTH.name)


def test_a_member_whose_period_changes_goes_on_under_its_new_law(
    grid: PaperGrid, connection: Connection
) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    slower = variable(NORTH.name, 9, period=Period(1, 20))
    notice = PublicationChanged(
        subscription_id=1, variable=slower, granted=granted(slower, 1, every=2), from_ns=0
    )
    grid.book.notice_received(notice, ())
    grid.work()
    at_ms = first_set_ms()
    grid.send(slower, (at_ms + 20, 4.0))
    latest = group.latest()
    assert latest is not None
    assert latest.values == {NORTH.name: 4.0}


def test_a_member_whose_new_period_does_not_fit_says_so(
    grid: PaperGrid, connection: Connection
) -> None:
    group = angles(connection)
    add(grid, group, NORTH, 1)
    odd = variable(NORTH.name, 9, period=Period(1, 15))
    notice = PublicationChanged(subscription_id=1, variable=odd, granted=granted(odd, 1), from_ns=0)
    grid.book.notice_received(notice, ())
    grid.work()
    grid.send(odd, (first_set_ms(), 4.0))
    member = group.member(NORTH.name)
    assert isinstance(member, Subscription)
    assert member.error_code == GroupMismatch.code


@pytest.mark.parametrize("latency_ms", [0, -1, float("nan")])
def test_a_group_needs_a_latency(connection: Connection, latency_ms: float) -> None:
    with pytest.raises(LayoutError):
        connection.group("g", interval=TENTH, latency_ms=latency_ms)
