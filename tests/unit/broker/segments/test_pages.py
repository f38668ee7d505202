"""Long lists go in pages: the parent's channels, and the segments that are held."""

from __future__ import annotations

from msgspec import structs

from gridstat.broker.segments.segment_reservations import PAGE_MAX, pages_of_held
from gridstat.net.command.tree_messages import OpenBorder
from tests.unit.broker.segments.family import (
    ENTRIES,
    EXITS,
    IN,
    IN_TWO,
    OUT,
    OUT_TWO,
    border,
    family,
)


def test_a_channel_is_closed_once_no_page_of_the_whole_list_has_named_it() -> None:
    cloud = family()
    opened = cloud.broker.registry.tree.borders
    first = (border(IN, "c2/b", "c1/i0"), border(OUT, "c1/i0", "c2/b"))
    last = (border(IN_TWO, "c3/b", "c1/i1"),)
    cloud.say(OpenBorder(term=7, channels=first, is_whole=True, is_last=False))
    cloud.settle()
    assert set(opened) == {IN, OUT, IN_TWO, OUT_TWO}
    cloud.say(OpenBorder(term=7, channels=last, is_whole=True, page=1))
    cloud.settle()
    assert set(opened) == {IN, OUT, IN_TWO}


def test_every_held_segment_stands_on_one_page_and_the_last_page_says_so() -> None:
    cloud = family()
    cloud.reserve("c9#1", entries=ENTRIES, exits=EXITS)
    (found,) = cloud.broker.registry.subscriptions.values()
    contracts = [f"c9#{number}" for number in range(1, 2 * PAGE_MAX + 2)]
    records = [structs.replace(found.record, contract=contract) for contract in contracts]
    pages = pages_of_held(7, records)
    assert [held.contract for page in pages for held in page.held] == contracts
    assert [page.is_last for page in pages] == [False, False, True]
    assert [page.is_last for page in pages_of_held(7, records[:PAGE_MAX])] == [True]
    (empty,) = pages_of_held(7, [])
    assert (empty.held, empty.is_last) == ((), True)
