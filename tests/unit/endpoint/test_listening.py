"""Several subscriptions of one variable, and several identifiers of one subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.endpoint.subscriber import Subscription
from gridstat.endpoint.subscription_book import Order
from gridstat.model.qos import ModalQos
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    EdgeCopies,
    GrantedOutcome,
    GrantedPath,
    PublicationChanged,
)
from tests.unit.endpoint.paper_grid import (
    MS,
    WALL_AHEAD_NS,
    PaperGrid,
    counters,
    granted,
    variable,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

VOLTAGE = variable()


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(grid: PaperGrid, subscription_id: int = 1, *, every: int = 1) -> Subscription:
    grid.cloud.ready.append((granted(VOLTAGE, subscription_id, every=every),))
    (found,) = grid.book.subscribe([Order(VOLTAGE.name, ModalQos(), keep_events=1_024)])
    assert isinstance(found, Subscription)
    return found


def test_two_subscriptions_of_one_variable_go_through_a_new_period_each_for_itself(
    grid: PaperGrid,
) -> None:
    one = subscribe(grid, every=2)
    two = subscribe(grid, 2)
    slower = variable(variable_id=9, period=Period(1, 50))
    for number, every in ((1, 2), (2, 1)):
        notice = PublicationChanged(
            subscription_id=number,
            variable=slower,
            granted=granted(slower, number, every=every),
            from_ns=300 * MS + WALL_AHEAD_NS,
        )
        grid.book.told(notice, ())
    grid.work()
    lost = [slot for slot in range(30) if slot not in (10, 11)]  # One of them is due to both.
    for slot in lost:
        grid.send(VOLTAGE, (10 * slot, float(slot)))
    for created_ms in range(300, 3_000, 20):
        grid.send(slower, (created_ms, 2.0))
        grid.work()
    assert (len(one.read()), len(two.read())) == (14 + 67, 28 + 135)
    counts = [(each.delivered, each.lost) for each in (one.ledger(), two.ledger())]
    assert counts == [(14 + 67, 1), (28 + 135, 2)]
    assert one.newest == two.newest or one.created_ns < two.created_ns


def test_copies_are_told_to_every_subscription_of_the_variable_from_its_beginning(
    grid: PaperGrid,
) -> None:
    one = subscribe(grid)
    grid.receiver.counted[1] = counters(delivered=10, duplicate=4)
    two = subscribe(grid, 2)
    grid.receiver.counted[1] = counters(delivered=15, duplicate=6)
    assert (one.ledger().duplicate, one.ledger().copies) == (6, (15, 6))
    assert (two.ledger().duplicate, two.ledger().copies) == (2, (5, 2))


def redundant(*edges: str) -> GrantedOutcome:
    paths = tuple(
        GrantedPath(routers=("c1/e0", f"c1/i{at}", edge), channel_ids=(at, 10 + at), latency_us=1)
        for at, edge in enumerate(edges)
    )
    return msgspec.structs.replace(granted(VOLTAGE), paths=paths)


def lost_by_path(subscription: Subscription) -> list[int]:
    return [path.lost for path in subscription.ledger().paths]


def test_paths_that_end_at_two_edges_are_told_apart_by_the_receiver(grid: PaperGrid) -> None:
    grid.cloud.ready.append((redundant("c1/e1", "c1/e2"),))
    (found,) = grid.book.subscribe([Order(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    grid.listening.places.update({"c1/e1": 0, "c1/e2": 1})
    for passed, came in ((0, [0, 0]), (100, [100, 90])):
        grid.clock.steady += 3_000 * MS
        found_by = {"passed": passed, "came": came, "first": came, "late_by": [0, 0]}
        grid.receiver.counted[1] = {**counters(), **found_by}  # type: ignore[typeddict-item]
        lost = lost_by_path(found)
    before = found.ledger().lost
    assert [each - before for each in lost] == [0, 10]
    assert grid.listening.asked_of_edge(found) == 0


def test_paths_that_end_at_one_edge_are_told_apart_by_what_it_says(grid: PaperGrid) -> None:
    grid.cloud.ready.append((redundant("c1/e1", "c1/e1"),))
    (found,) = grid.book.subscribe([Order(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    assert grid.listening.asked_of_edge(found) == VOLTAGE.variable_id
    for passed, came in ((0, 0), (100, 90)):
        grid.clock.steady += 3_000 * MS
        ways = {10: (came, came), 11: (passed, passed)}
        said = EdgeCopies(variable_id=1, every=1, passed=passed, ways=ways)
        grid.listening.note_copies("c1/e1", (said,))
        lost = lost_by_path(found)
    before = found.ledger().lost
    assert [each - before for each in lost] == [10, 0]
