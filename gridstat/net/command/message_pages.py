"""Long lists between brokers, sent in pages of bounded size.

The sender sends all pages of a list one after the other, numbered from 0. A receiver starts again
at each page 0, and drops a list with a missing page: sessions keep the order, so a gap means that
the list was cut off by a lost session and will be sent again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import structs

from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import AbstractLinksReported, OpenBorder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gridstat.net.command.tree_messages import BorderChannel

Item = TypeVar("Item")

OUT_OF_ORDER: Final = -1


def pages_of_abstract_links(report: AbstractLinksReported) -> Iterator[AbstractLinksReported]:
    """Yield the report in pages that fit into a frame with the longest names and all modes."""
    for page, abstract_links, is_last in _pages(report.abstract_links):
        traps = report.traps if is_last else ()
        yield structs.replace(
            report, abstract_links=abstract_links, traps=traps, page=page, is_last=is_last
        )


def pages_of_borders(
    term: int, channels: Sequence[BorderChannel], *, is_whole: bool
) -> Iterator[OpenBorder]:
    for page, some, is_last in _pages(tuple(channels)):
        yield OpenBorder(term=term, channels=some, is_whole=is_whole, page=page, is_last=is_last)


def _pages(items: tuple[Item, ...]) -> Iterator[tuple[int, tuple[Item, ...], bool]]:
    count = max(1, -(-len(items) // MANY_MAX))
    for page in range(count):
        yield page, items[page * MANY_MAX : (page + 1) * MANY_MAX], page == count - 1


class PageAssembler(Generic[Item]):
    """Assembles one list from its pages; drops a list with a missing page or with too many
    items."""

    def __init__(self, items_max: int) -> None:
        self._items_max = items_max
        self._items: list[Item] = []
        self._next = 0

    def take(self, page: int, items: Sequence[Item], *, is_last: bool) -> list[Item] | None:
        """Add a page; return the whole list after its last page, else None."""
        if page == 0:
            self._items, self._next = [], 0
        if page != self._next or len(self._items) + len(items) > self._items_max:
            self._items, self._next = [], OUT_OF_ORDER
            return None
        self._items.extend(items)
        self._next += 1
        if not is_last:
            return None
        found, self._items, self._next = self._items, [], OUT_OF_ORDER
        return found
