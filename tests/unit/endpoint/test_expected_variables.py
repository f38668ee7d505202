"""Several subscriptions of one variable, and several identifiers of one subscription."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from gridstat.endpoint.expected_variables import FULL_EVERY
from gridstat.endpoint.options import SubscriptionSpec
from gridstat.endpoint.session_events import SubscriptionRestored
from gridstat.endpoint.subscriber import Subscription
from gridstat.model.qos import ModalQos, Qos
from gridstat.model.rate_law import Period
from gridstat.net.command.endpoint_messages import (
    ContractChanged,
    EdgeCopies,
    GrantedOutcome,
    GrantedPath,
    PublicationChanged,
    ReportLedger,
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

    from gridstat.endpoint.ledger import Ledger

VOLTAGE = variable()


@pytest.fixture
def grid() -> Iterator[PaperGrid]:
    found = PaperGrid()
    yield found
    found.close()


def subscribe(grid: PaperGrid, subscription_id: int = 1, *, every: int = 1) -> Subscription:
    grid.cloud.ready.append((granted(VOLTAGE, subscription_id, every=every),))
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos(), keep_events=1_024)])
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
        grid.book.notice_received(notice, ())
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
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    grid.listening.source_indices.update({"c1/e1": 0, "c1/e2": 1})
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
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
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


def read_at_receiver(grid: PaperGrid, found: Subscription, passed: int, *came: int) -> Ledger:
    """Three seconds later the receiver has counted so much; half of it was late."""
    grid.clock.steady += 3_000 * MS
    counted = counters(delivered=passed, duplicate=passed)
    counted["passed"], counted["came"], counted["first"] = passed, [*came], [*came]
    counted["late_by"] = [each // 2 for each in came]
    grid.receiver.counted[1] = counted
    return found.ledger()


def change(grid: PaperGrid, **terms: int) -> None:
    qos = Qos(**{"every": 1, "latency_us": 20_000, "redundancy": 2, "priority": 3, **terms})
    changed = msgspec.structs.replace(redundant("c1/e1", "c1/e2"), granted={0: qos})
    grid.book.notice_received(ContractChanged(granted=changed), ())
    grid.work()


def at_two_edges(grid: PaperGrid) -> Subscription:
    grid.cloud.ready.append((redundant("c1/e1", "c1/e2"),))
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    grid.listening.source_indices.update({"c1/e1": 0, "c1/e2": 1})
    return found


@pytest.mark.parametrize("terms", [{"every": 2}, {"latency_us": 30_000}], ids=["every", "latency"])
def test_paths_are_counted_by_the_new_terms_after_a_change_in_place(
    grid: PaperGrid, terms: dict[str, int]
) -> None:
    found = at_two_edges(grid)
    read_at_receiver(grid, found, 0, 0, 0)
    before = read_at_receiver(grid, found, 100, 100, 90)
    change(grid, **terms)
    assert grid.receiver.terms[1][1:] == (
        terms.get("every", 1),
        1_000 * terms.get("latency_us", 20_000),
    )
    same = found.ledger()
    assert (same.duplicate, same.copies) == (before.duplicate, before.copies)
    read_at_receiver(grid, found, 0, 0, 0)
    after = read_at_receiver(grid, found, 200, 200, 90)
    assert [path.delivered for path in after.paths] == [300, 180]
    assert [path.is_counted for path in after.paths] == [True, True]
    assert [path.late for path in after.paths] == [50 + 100, 45 + 45]
    assert after.duplicate == before.duplicate + 200


def test_paths_are_unknown_while_the_receiver_counts_by_the_terms_of_another(
    grid: PaperGrid,
) -> None:
    found = at_two_edges(grid)
    other = subscribe(grid, 2)
    read_at_receiver(grid, found, 0, 0, 0)
    read_at_receiver(grid, found, 100, 100, 90)
    change(grid, every=2)
    assert grid.receiver.expected[1][1] == 1, "the other needs each slot"
    for path in read_at_receiver(grid, found, 200, 200, 90).paths:
        assert (path.is_counted, path.late) == (False, None)
    other.unsubscribe()
    assert grid.receiver.expected[1][1] == 2, "now it counts for the one who is left"
    read_at_receiver(grid, found, 0, 0, 0)
    assert all(path.is_counted for path in read_at_receiver(grid, found, 10, 10, 9).paths)


def test_nobody_is_late_by_the_deadline_of_another_subscription(grid: PaperGrid) -> None:
    found = at_two_edges(grid)
    subscribe(grid, 2)
    read_at_receiver(grid, found, 0, 0, 0)
    change(grid, latency_us=30_000)
    after = read_at_receiver(grid, found, 100, 100, 90)
    assert [path.is_counted for path in after.paths] == [True, True]
    assert [path.late for path in after.paths] == [None, None]


def paths_told(grid: PaperGrid) -> int:
    grid.receiver.counted[1] = counters(duplicate=1)
    grid.book.report()
    command = grid.cloud.asked[-1]
    assert isinstance(command, ReportLedger)
    (entry,) = command.entries
    return len(entry.paths)


def on_path(middle: str) -> GrantedOutcome:
    routers = ("c1/e0", middle, "c1/e1")
    path = GrantedPath(routers=routers, channel_ids=(1, 2), latency_us=1)
    return msgspec.structs.replace(granted(VOLTAGE), paths=(path,))


def test_paths_that_were_left_are_told_when_that_is_news_and_now_and_then(grid: PaperGrid) -> None:
    grid.cloud.ready.append((on_path("c1/i0"),))
    (found,) = grid.book.subscribe([SubscriptionSpec(VOLTAGE.name, ModalQos())])
    assert isinstance(found, Subscription)
    assert paths_told(grid) == 0
    grid.book.notice_received(ContractChanged(granted=on_path("c1/i1")), ())
    grid.work()
    assert [paths_told(grid) for _ in range(2)] == [2, 1]
    grid.book.restored(SubscriptionRestored(found.label, on_path("c1/i1")))
    assert [paths_told(grid) for _ in range(2)] == [2, 1], "the cloud had forgotten it"
    assert sorted(paths_told(grid) for _ in range(FULL_EVERY)) == [*[1] * (FULL_EVERY - 1), 2]
