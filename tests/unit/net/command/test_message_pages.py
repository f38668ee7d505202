"""Lists in pages: none too long for its receiver, and none believed that is not whole."""

from __future__ import annotations

from gridstat.net.command.frames import FRAME_BYTES_MAX, frame
from gridstat.net.command.message_pages import (
    PageAssembler,
    pages_of_abstract_links,
    pages_of_borders,
)
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import (
    BORDERS_MAX,
    AbstractLink,
    AbstractLinksReported,
    Trap,
)

FREE = dict.fromkeys(range(64), 10**12)
TRAP = Trap(entries=("c/a", "c/b"), exits=("c/d", "c/e"))


def abstract_links(borders: int) -> AbstractLinksReported:
    """Return links with the longest names, and different free amounts in every mode."""
    names = [f"c/{at:0>250}" for at in range(borders)]
    ways = tuple(
        AbstractLink(
            from_router=one,
            to_router=other,
            latency_us=1 << 39,
            free_bytes_per_s=FREE,
            free_events_per_s=FREE,
        )
        for one in names
        for other in names
        if one != other
    )
    return AbstractLinksReported(term=1, abstract_links=ways, traps=(TRAP,))


def test_ways_between_as_many_borders_as_there_may_be_go_into_frames() -> None:
    told = abstract_links(BORDERS_MAX)
    pages = list(pages_of_abstract_links(told))
    assert max(len(frame(page)) for page in pages) < FRAME_BYTES_MAX
    arriving: PageAssembler[AbstractLink] = PageAssembler(BORDERS_MAX**2)
    found = [arriving.take(page.page, page.abstract_links, is_last=page.is_last) for page in pages]
    assert found[:-1] == [None] * (len(pages) - 1)
    assert tuple(found[-1] or ()) == told.abstract_links
    assert [page.traps for page in pages if page.traps] == [(TRAP,)]


def test_an_empty_list_is_one_page() -> None:
    (page,) = pages_of_borders(1, (), is_whole=True)
    assert (page.channels, page.is_whole, page.page, page.is_last) == ((), True, 0, True)


def test_a_list_with_a_page_missing_counts_for_nothing_until_another_begins() -> None:
    arriving: PageAssembler[int] = PageAssembler(10)
    assert arriving.take(0, [1], is_last=False) is None
    assert arriving.take(2, [3], is_last=True) is None
    assert arriving.take(1, [2], is_last=True) is None
    assert arriving.take(0, [4], is_last=False) is None
    assert arriving.take(1, [5], is_last=True) == [4, 5]


def test_the_last_page_of_a_list_is_not_the_middle_of_another() -> None:
    arriving: PageAssembler[int] = PageAssembler(10)
    assert arriving.take(0, [1], is_last=False) is None
    assert arriving.take(0, [2], is_last=True) == [2]
    assert arriving.take(1, [3], is_last=True) is None


def test_a_list_without_end_is_dropped_at_its_bound() -> None:
    arriving: PageAssembler[int] = PageAssembler(2 * MANY_MAX)
    some = list(range(MANY_MAX))
    for page in range(3):
        assert arriving.take(page, some, is_last=page == 2) is None
