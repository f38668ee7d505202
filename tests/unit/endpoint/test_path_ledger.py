"""Ledger of each path: the path that loses is named, through every change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from gridstat.endpoint.path_ledger import (
    EARLIER,
    SETTLE_NS,
    UNREAD_NS_MAX,
    Counted,
    EdgeReading,
    PathLedger,
    PathLedgers,
)
from gridstat.model.copy_window import COPY_PATHS
from gridstat.net.command.endpoint_messages import LEDGER_PATHS_MAX, EdgeCopies, GrantedPath
from tests.unit.endpoint.paper_grid import counters

if TYPE_CHECKING:
    from gridstat.core.samples import VariableCounters

UPPER = GrantedPath(
    routers=("c1/e0", "c1/i0", "c1/e1"), channel_ids=(1, 2), latency_us=9, name="path 1"
)
LOWER = GrantedPath(
    routers=("c1/e0", "c1/i1", "c1/e1"), channel_ids=(3, 4), latency_us=9, name="path 2"
)
OTHER = GrantedPath(
    routers=("c1/e0", "c1/i2", "c1/e1"), channel_ids=(5, 6), latency_us=9, name="path 2"
)
FAR = GrantedPath(
    routers=("c1/e0", "c1/i1", "c1/e2"), channel_ids=(3, 7), latency_us=9, name="path 2"
)
LATER_NS = SETTLE_NS + 1
NUMBER = 5


def at_edge(
    passed: int, *ways: tuple[int, int, int], lost: int = 0, at_ns: int = LATER_NS, every: int = 1
) -> Counted:
    """A shared edge has counted: by channel what came, and what came first."""
    copies = EdgeCopies(
        variable_id=NUMBER,
        every=every,
        passed=passed,
        ways={channel_id: (came, first) for channel_id, came, first in ways},
    )
    return Counted(
        now_ns=at_ns,
        delivered=passed,
        lost=lost,
        every=1,
        variable_id=NUMBER,
        edges={("c1/e1", NUMBER): EdgeReading(copies, at_ns)},
    )


def at_receiver(passed: int, *came: int, lost: int = 0, at_ns: int = LATER_NS) -> Counted:
    counted: VariableCounters = counters()
    counted["passed"], counted["came"], counted["first"] = passed, list(came), list(came)
    counted["late_by"] = [each // 2 for each in came]
    return Counted(
        now_ns=at_ns,
        delivered=passed,
        lost=lost,
        every=1,
        variable_id=NUMBER,
        receiver=counted,
        receiver_every=1,
        source_indices={"c1/e1": 0, "c1/e2": 1},
    )


def told(book: PathLedgers) -> list[tuple[str, int, int, int]]:
    return [(each.name, each.expected, each.delivered, each.lost) for each in book.ledgers()]


def test_the_path_that_loses_is_named_where_both_end_at_one_edge() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    assert book.asks_edge
    book.read(at_edge(100, (2, 100, 90), (4, 100, 10)))
    book.read(at_edge(200, (2, 200, 130), (4, 160, 70)))
    assert told(book) == [("path 1", 100, 100, 0), ("path 2", 100, 60, 40)]
    assert [each.first for each in book.ledgers()] == [40, 60]
    assert [each.late for each in book.ledgers()] == [None, None], "an edge knows no latency"
    assert [each.routers for each in book.ledgers()] == [UPPER.routers, LOWER.routers]


def test_the_path_that_loses_is_named_where_they_end_at_two_edges() -> None:
    book = PathLedgers()
    book.follow((UPPER, FAR), 0)
    assert book.asks_receiver
    assert not book.asks_edge
    book.read(at_receiver(10, 10, 10, 0, 0))
    book.read(at_receiver(30, 25, 30, 0, 0))
    assert told(book) == [("path 1", 20, 15, 5), ("path 2", 20, 20, 0)]
    assert [each.late for each in book.ledgers()] == [12 - 5, 15 - 5]


def test_what_no_path_brought_is_lost_on_all_of_them() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 100), (4, 100, 0), lost=3))
    book.read(at_edge(110, (2, 110, 110), (4, 108, 0), lost=8))
    assert told(book) == [("path 1", 15, 10, 5), ("path 2", 15, 8, 7)]


def test_a_path_of_which_nothing_ever_came_has_lost_everything() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(0))
    book.read(at_edge(50, (2, 50, 50)))
    assert told(book) == [("path 1", 50, 50, 0), ("path 2", 50, 0, 50)]


def test_the_only_path_has_all_that_the_subscription_has() -> None:
    book = PathLedgers()
    book.follow((UPPER,), 0)
    book.read(Counted(0, 0, 0))
    book.read(Counted(0, 12, 3))
    assert book.ledgers() == (PathLedger("path 1", UPPER.routers, 15, 12, 3, 12, late=0),)


def test_nothing_counts_before_the_new_ways_have_settled() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 100), at_ns=SETTLE_NS - 1))
    assert not any(each.is_counted or each.expected for each in book.ledgers())
    early = at_edge(100, (2, 100, 100), at_ns=SETTLE_NS - 1)
    book.read(replace(early, now_ns=LATER_NS))  # What the edge said then is no beginning.
    assert not any(each.is_counted for each in book.ledgers())


def test_what_an_edge_counts_of_other_slots_says_nothing() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    for passed in (100, 200):
        book.read(replace(at_edge(passed, (2, passed, passed), every=3), every=2))
    assert told(book) == [("path 1", 0, 0, 0), ("path 2", 0, 0, 0)]
    assert not any(each.is_counted for each in book.ledgers())


def test_slots_that_are_due_to_another_contract_too_stand_for_all_of_ours() -> None:
    """Continue with every second slot, to which another contract has subscribed."""
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 90), (4, 100, 10)))
    book.read(at_edge(200, (2, 200, 190), (4, 200, 10)))
    assert [each.one_in for each in book.ledgers()] == [1, 1]
    book.read(at_edge(0, every=2))
    book.read(at_edge(50, (2, 50, 50), every=2))  # The lower path has died.
    assert told(book) == [("path 1", 200, 200, 0), ("path 2", 200, 100, 100)]
    assert [(each.one_in, each.is_counted) for each in book.ledgers()] == [(2, True)] * 2


def test_what_can_no_longer_be_read_is_not_counted_and_goes_on_when_it_can() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 90), (4, 100, 10)))
    book.read(at_edge(200, (2, 200, 190), (4, 190, 10)))
    other = at_edge(900, (2, 900, 900), every=3)
    for unreadable in (replace(other, every=2), replace(other, edges={})):
        book.read(unreadable)
        assert not any(each.is_counted or each.late is not None for each in book.ledgers())
    book.read(at_edge(300, (2, 300, 300), (4, 190, 0)))
    book.read(at_edge(310, (2, 310, 310), (4, 199, 0)))
    assert told(book) == [("path 1", 110, 110, 0), ("path 2", 110, 99, 11)]
    assert all(each.is_counted for each in book.ledgers())


def test_an_edge_that_says_nothing_any_more_is_not_taken_at_its_last_word() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    last = at_edge(100, (2, 100, 90), (4, 100, 10))
    for later_ns, is_counted in ((0, True), (UNREAD_NS_MAX, True), (UNREAD_NS_MAX + 1, False)):
        book.read(replace(last, now_ns=LATER_NS + later_ns))
        assert [each.is_counted for each in book.ledgers()] == [is_counted] * 2


def test_a_channel_for_which_an_edge_has_no_place_is_unknown_and_has_lost_nothing() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    others = [(20 + number, 100, 0) for number in range(COPY_PATHS - 1)]
    for passed in (100, 200):
        book.read(at_edge(passed, (2, passed, passed), *others))
    upper, lower = book.ledgers()
    assert (upper.delivered, upper.is_counted) == (100, True)
    assert (lower.lost, lower.is_counted) == (0, False)
    book.read(at_edge(900, (2, 900, 900), (4, 10, 0), *others[1:]))  # It has found one.
    book.read(at_edge(910, (2, 910, 910), (4, 19, 0), *others[1:]))
    assert told(book)[1] == ("path 2", 10, 9, 1)


def test_no_more_copies_are_late_than_came() -> None:
    book = PathLedgers()
    book.follow((UPPER, FAR), 0)
    for passed, late in ((0, 0), (10, 12)):  # Of the newest slots, too, which are still open.
        now = at_receiver(passed, passed, passed, 0, 0)
        assert now.receiver is not None
        now.receiver["late_by"] = [late, late, 0, 0]
        book.read(now)
    assert [(each.delivered, each.late) for each in book.ledgers()] == [(10, 10)] * 2


def test_by_the_deadline_of_another_contract_nobody_is_late() -> None:
    book = PathLedgers()
    book.follow((UPPER, FAR), 0)
    for passed in (10, 20):
        book.read(replace(at_receiver(passed, passed, passed, 0, 0), is_own_deadline=False))
    assert [(each.delivered, each.late) for each in book.ledgers()] == [(10, None)] * 2


def test_a_path_that_was_left_keeps_its_counts_and_the_new_one_begins_with_none() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 100), (4, 100, 0)))
    book.read(at_edge(200, (2, 200, 200), (4, 140, 0)))
    book.follow((UPPER, OTHER), 10 * SETTLE_NS)
    book.read(at_edge(300, (2, 300, 300), (4, 140, 0), (6, 50, 0), at_ns=20 * SETTLE_NS))
    book.read(at_edge(400, (2, 400, 400), (4, 140, 0), (6, 149, 0), at_ns=21 * SETTLE_NS))
    assert told(book) == [
        ("path 1", 300, 300, 0),
        ("path 2", 100, 99, 1),
        ("path 2", 100, 40, 60),
    ]
    assert [each.is_open for each in book.ledgers()] == [True, True, False]


def test_a_path_that_comes_back_goes_on_counting() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(0))
    book.read(at_edge(100, (2, 100, 100), (4, 90, 0)))
    book.follow((UPPER,), SETTLE_NS)
    book.read(replace(at_edge(150, (2, 150, 150), (4, 90, 0)), delivered=150))
    book.follow((UPPER, LOWER), 2 * SETTLE_NS)
    book.read(at_edge(200, (2, 200, 200), (4, 100, 0), at_ns=4 * SETTLE_NS))
    book.read(at_edge(300, (2, 300, 300), (4, 195, 0), at_ns=5 * SETTLE_NS))
    first, second = book.ledgers()
    assert (first.lost, second.lost) == (0, 10 + 5)
    assert (second.expected, second.is_open) == (200, True)


def test_paths_over_channels_beside_each_other_have_ledgers_of_their_own() -> None:
    north = msgspec.structs.replace(
        UPPER, channel_ids=(1, 8), name="path 2", channel_names=("", "north")
    )
    book = PathLedgers()
    book.follow((UPPER, north), 0)
    book.read(at_edge(0, (2, 0, 0), (8, 0, 0)))
    book.read(at_edge(10, (2, 10, 10), (8, 0, 0)))
    assert told(book) == [("path 1", 10, 10, 0), ("path 2", 10, 0, 10)]
    assert [each.entry().channel_names for each in book.ledgers()] == [(), ("", "north")]


def test_a_path_whose_channel_was_opened_again_goes_on_counting() -> None:
    """Its label is the same, and a report of two paths with one label is none."""
    book = PathLedgers()
    book.follow((UPPER,), 0)
    book.read(Counted(0, 0, 0))
    book.read(Counted(1, 10, 0))
    book.follow((msgspec.structs.replace(UPPER, channel_ids=(1, 9)),), 2)
    assert [(each.routers, each.delivered) for each in book.ledgers()] == [(UPPER.routers, 10)]


def test_no_count_falls_when_an_edge_begins_anew() -> None:
    book = PathLedgers()
    book.follow((UPPER, LOWER), 0)
    book.read(at_edge(100, (2, 100, 100), (4, 100, 0)))
    book.read(at_edge(200, (2, 200, 200), (4, 150, 0)))
    before = told(book)
    book.read(at_edge(3, (2, 3, 3)))  # The router has crashed and is back.
    assert told(book) == before
    book.read(at_edge(13, (2, 13, 13), (4, 10, 0)))
    assert told(book) == [("path 1", 110, 110, 0), ("path 2", 110, 60, 50)]


def test_of_very_many_paths_the_oldest_are_summed_up() -> None:
    book = PathLedgers()
    for number in range(3 * LEDGER_PATHS_MAX):
        path = replace_router(UPPER, f"c1/i{number}")
        book.follow((path,), 0)
        book.read(Counted(0, 10 * number, number))
        book.read(Counted(0, 10 * number + 10, number + 1))
    found = book.ledgers()
    assert len(found) == LEDGER_PATHS_MAX
    assert found[-1].name == EARLIER
    assert sum(each.expected for each in found) == 33 * LEDGER_PATHS_MAX
    assert sum(each.lost for each in found) == 3 * LEDGER_PATHS_MAX


def replace_router(path: GrantedPath, middle: str) -> GrantedPath:
    return GrantedPath(
        routers=(path.routers[0], middle, path.routers[-1]), channel_ids=(1, 2), latency_us=9
    )


def test_what_is_reported_says_the_same() -> None:
    ledger = PathLedger("path 2", LOWER.routers, 5, 4, 1, 2, is_open=False)
    entry = ledger.entry()
    assert (entry.name, entry.routers, entry.is_open) == ("path 2", LOWER.routers, False)
    assert (entry.expected, entry.delivered, entry.lost, entry.first) == (5, 4, 1, 2)
