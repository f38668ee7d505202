"""Names and patterns as trees of their parts, so that a look-up costs the depth of a name.

Which names a pattern stands for, and which patterns a new name answers to: both walks skip all
that cannot match, however much is registered. The law itself is `model.cloud.matches`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE: Final = "*"
ALL_BELOW: Final = "**"


class _Node:
    """`ends` holds what is registered under exactly the parts that lead here.

    `order` are the parts below, sorted when somebody walks there for the first time, and kept so.
    """

    __slots__ = ("below", "ends", "order")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.ends: set[int] = set()
        self.order: list[str] | None = None

    def child(self, part: str) -> _Node:
        found = self.below.get(part)
        if found is None:
            found = self.below[part] = _Node()
            if self.order is not None:
                insort(self.order, part)
        return found

    def cut(self, part: str) -> None:
        del self.below[part]
        if self.order is not None:
            del self.order[bisect_left(self.order, part)]

    def sorted_from(self, first: str) -> Iterator[str]:
        """The parts below, from this one on. Whoever changes them meanwhile has to begin anew."""
        if self.order is None:
            self.order = sorted(self.below)
        order = self.order
        for at in range(bisect_left(order, first), len(order)):
            yield order[at]


class NameTree:
    """Numbers by name; a number stands under one name, and empty branches are cut off."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, name: str, number: int) -> None:
        node = self._root
        for part in name.split("/"):
            node = node.child(part)
        node.ends.add(number)

    def discard(self, name: str, number: int) -> None:
        way: list[tuple[_Node, str]] = []
        node = self._root
        for part in name.split("/"):
            child = node.below.get(part)
            if child is None:
                return
            way.append((node, part))
            node = child
        node.ends.discard(number)
        for parent, part in reversed(way):
            child = parent.below[part]
            if child.ends or child.below:
                break
            parent.cut(part)

    @property
    def has_branches(self) -> bool:
        return bool(self._root.below)

    def matching(self, pattern: str, *, after: str = "") -> Iterator[int]:
        """Numbers of the names that a pattern (or a plain name) stands for, in name order.

        With `after` only of those behind that name, which need not be registered: the order is
        that of the parts, so that a name stands before all that begin with it.
        """
        return _named(self._root, pattern.split("/"), 0, after.split("/") if after else None)

    def answering(self, name: str) -> list[int]:
        """Numbers of the patterns that stand for a name, ascending."""
        return sorted(_patterns(self._root, name.split("/"), 0))


def _named(node: _Node, parts: list[str], at: int, after: list[str] | None = None) -> Iterator[int]:
    """`after` are the parts below this node of the name behind which to begin, if it is here."""
    if at == len(parts):
        if after is None:
            yield from sorted(node.ends)
        return
    part = parts[at]
    if part == ALL_BELOW:
        for child, rest in _children(node, after):
            yield from _everything(child, rest)
    elif part == ONE:
        for child, rest in _children(node, after):
            yield from _named(child, parts, at + 1, rest)
    else:
        for child, rest in _children(node, after, only=part):
            yield from _named(child, parts, at + 1, rest)


def _everything(node: _Node, after: list[str] | None) -> Iterator[int]:
    if after is None:
        yield from sorted(node.ends)
    for child, rest in _children(node, after):
        yield from _everything(child, rest)


def _children(
    node: _Node, after: list[str] | None, *, only: str | None = None
) -> Iterator[tuple[_Node, list[str] | None]]:
    """What is below a node, in order, without all that stands before `after`."""
    first = after[0] if after else ""
    if only is not None:
        parts = iter([only] if only in node.below and only >= first else [])
    else:
        parts = node.sorted_from(first)
    for part in parts:
        yield node.below[part], after[1:] if after and part == first else None


def _patterns(node: _Node, parts: list[str], at: int) -> Iterator[int]:
    if at == len(parts):
        yield from node.ends
        return
    if (rest := node.below.get(ALL_BELOW)) is not None:
        yield from rest.ends
    for part in (ONE, parts[at]):
        if (child := node.below.get(part)) is not None:
            yield from _patterns(child, parts, at + 1)
