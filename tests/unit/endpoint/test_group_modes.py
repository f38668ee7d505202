"""Groups whose quality differs by mode, asked for as subscriptions ask for theirs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gridstat.endpoint.connection import Connection
from gridstat.endpoint.options import qos
from gridstat.model.errors import LayoutError, Misuse
from gridstat.model.qos import ModalQos, Qos, QosRequest
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    FoundOutcome,
    GrantedOutcome,
    ModesChanged,
    Subscribe,
)
from tests.unit.endpoint.paper_grid import MS, WALL_AHEAD_NS, PaperGrid, PaperLink, variable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ANGLE = variable("c1/north/angle", 1, period=Period(1, 50))
TENTH, FIFTH = Period(1, 10), Period(1, 5)
MODES = {
    1: qos(interval=TENTH, latency_ms=50, priority=2),
    2: qos(interval=FIFTH, latency_ms=80, redundancy=2),
}


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


@pytest.fixture
def connection(grid: PaperGrid) -> Connection:
    return Connection(PaperLink(grid))  # type: ignore[arg-type]


def lay_ready(grid: PaperGrid) -> None:
    granted = {
        1: Qos(every=5, latency_us=50_000, redundancy=1, priority=2),
        2: Qos(every=10, latency_us=80_000, redundancy=2, priority=5),
    }
    grid.cloud.ready.append((FoundOutcome(variables=(ANGLE,)),))
    grid.cloud.ready.append((GrantedOutcome(subscription_id=1, variable=ANGLE, granted=granted),))


def asked(grid: PaperGrid) -> ModalQos:
    (command,) = [each for each in grid.cloud.asked if isinstance(each, Subscribe)]
    return command.subscriptions[0].qos


def test_members_are_asked_for_what_the_group_wants_in_each_mode(
    grid: PaperGrid, connection: Connection
) -> None:
    group = connection.group("angles", modes=MODES)
    lay_ready(grid)
    group.add(ANGLE.name)
    assert asked(grid) == ModalQos(MODES)


def test_a_members_own_options_hold_in_every_mode(grid: PaperGrid, connection: Connection) -> None:
    group = connection.group("angles", modes=MODES)
    lay_ready(grid)
    group.add(ANGLE.name, redundancy=3)
    assert asked(grid) == ModalQos(
        {
            1: qos(interval=TENTH, latency_ms=50, priority=2, redundancy=3),
            2: qos(interval=FIFTH, latency_ms=80, redundancy=3),
        }
    )


def test_a_change_of_modes_changes_how_often_there_is_a_set(
    grid: PaperGrid, connection: Connection
) -> None:
    group = connection.group("angles", modes=MODES, history=10)
    grid.book.set_modes(0b011)
    lay_ready(grid)
    group.add(ANGLE.name)
    grid.work()
    past_ms = WALL_AHEAD_NS // MS % 200
    at_ms = 400 - past_ms
    grid.send(ANGLE, *((at_ms + step, 1.0) for step in range(0, 400, 20)))
    assert group.interval == TENTH
    assert group.completed == 4

    grid.book.notice_received(ModesChanged(modes=0b101), ())
    grid.work()
    grid.send(ANGLE, *((at_ms + step, 2.0) for step in range(400, 800, 20)))
    assert group.interval == FIFTH
    assert group.completed == 4 + 2
    assert len(group.latest(10)) == 2


@pytest.mark.parametrize(
    ("modes", "words"),
    [
        ({1: QosRequest()}, "in mode 1 a group has no interval"),
        ({2: qos(interval=TENTH, interval_worst=FIFTH)}, "in mode 2 a group has no interval"),
    ],
    ids=["none", "a band"],
)
def test_every_mode_of_a_group_says_how_often(
    connection: Connection, modes: Mapping[int, QosRequest], words: str
) -> None:
    with pytest.raises(Misuse, match=words):
        connection.group("angles", modes=modes)


def test_a_group_is_asked_for_in_one_way(connection: Connection) -> None:
    with pytest.raises(Misuse, match="either modes"):
        connection.group("angles", interval=TENTH, modes=MODES)
    with pytest.raises(Misuse, match="needs interval and latency_ms"):
        connection.group("angles", interval=TENTH)
    with pytest.raises(LayoutError, match=r"must be 0\.001 to"):
        connection.group("angles", interval=TENTH, latency_ms=0)


def test_a_member_cannot_ask_for_a_slower_set_in_the_worst_case(connection: Connection) -> None:
    group = connection.group("angles", interval=TENTH, latency_ms=50)
    with pytest.raises(Misuse, match="the group's own option"):
        group.add(ANGLE.name, interval_worst=FIFTH)
