"""Names and patterns as trees of their parts, so that a look-up costs the depth of a name.

The tree finds the names that match a pattern, and the patterns that match a name; both walks skip
branches that cannot match. The matching rule itself is `model.cloud.matches`.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE: Final = "*"
ALL_BELOW: Final = "**"
IN_VAIN_AT_ONCE: Final = 256
"""Branches without a matching name after which a walk says how far it has come."""


class _Node:
    """A node; `ends` holds the numbers registered under exactly the parts that lead here.

    `order` holds the sorted parts below; it is built at the first walk and maintained afterwards.
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

    def remove(self, part: str) -> None:
        del self.below[part]
        if self.order is not None:
            del self.order[bisect_left(self.order, part)]

    def sorted_from(self, first: str) -> Iterator[str]:
        """Yield the parts below from `first` on; a change of the node invalidates the iterator."""
        if self.order is None:
            self.order = sorted(self.below)
        order = self.order
        for at in range(bisect_left(order, first), len(order)):
            yield order[at]


class NameTree:
    """Numbers by name; a number has one name, and empty branches are removed."""

    def __init__(self) -> None:
        self._root = _Node()
        self.in_vain = 0
        """Branches in which all walks of names have looked for nothing."""

    def add(self, name: str, number: int) -> None:
        node = self._root
        for part in name.split("/"):
            node = node.child(part)
        node.ends.add(number)

    def discard(self, name: str, number: int) -> None:
        path: list[tuple[_Node, str]] = []
        node = self._root
        for part in name.split("/"):
            child = node.below.get(part)
            if child is None:
                return
            path.append((node, part))
            node = child
        node.ends.discard(number)
        for parent, part in reversed(path):
            child = parent.below[part]
            if child.ends or child.below:
                break
            parent.remove(part)

    def matching(self, pattern: str, *, after: str = "") -> Iterator[int]:
        """Yield the numbers of the names that match a pattern (or plain name), in name order.

        With `after` only names behind that one, which need not be registered. Names are ordered by
        parts, so a name comes before all that begin with it.
        """
        return (each for each in self.walk(pattern, after=after) if isinstance(each, int))

    def walk(self, pattern: str, *, after: str = "") -> Iterator[int | str]:
        """Yield as `matching` does, and now and then the begin of a name at which the walk is.

        A walk after that begin goes on there. So whoever looks for what is not there can pause.
        """
        rest = after.split("/") if after else None
        return _matching_names(self._root, pattern.split("/"), 0, _Walk(self), rest)

    def matching_patterns(self, name: str) -> list[int]:
        """Return the numbers of the patterns that match a name, ascending."""
        return sorted(_matching_patterns(self._root, name.split("/"), 0))


class _Walk:
    """Place of one walk, and the branches in which it has found nothing."""

    __slots__ = ("in_vain", "path", "tree")

    def __init__(self, tree: NameTree) -> None:
        self.tree = tree
        self.path: list[str] = []
        self.in_vain = 0

    def has_to_pause(self) -> bool:
        """Count a branch in which nothing was found; return whether there were many."""
        self.tree.in_vain += 1
        self.in_vain += 1
        return self.in_vain % IN_VAIN_AT_ONCE == 0


def _matching_names(
    node: _Node, parts: list[str], at: int, walk: _Walk, after: list[str] | None = None
) -> Iterator[int | str]:
    """Yield numbers below a node; `after` holds the remaining parts of the name to start behind."""
    if at == len(parts):
        if after is None:
            yield from sorted(node.ends)
        return
    part = parts[at]
    if part == ALL_BELOW:
        for _, child, rest in _children(node, after):
            yield from _all_names(child, rest)
    elif part == ONE:
        for name, child, rest in _children(node, after):
            walk.path.append(name)
            in_vain, has_found = walk.in_vain, False
            for each in _matching_names(child, parts, at + 1, walk, rest):
                has_found = True
                yield each
            # The branches below have been counted, and a walk that goes on does so in those.
            if not has_found and walk.in_vain == in_vain and walk.has_to_pause():
                yield "/".join(walk.path)
            walk.path.pop()
    else:
        for _, child, rest in _children(node, after, only=part):
            walk.path.append(part)
            yield from _matching_names(child, parts, at + 1, walk, rest)
            walk.path.pop()


def _all_names(node: _Node, after: list[str] | None) -> Iterator[int]:
    if after is None:
        yield from sorted(node.ends)
    for _, child, rest in _children(node, after):
        yield from _all_names(child, rest)


def _children(
    node: _Node, after: list[str] | None, *, only: str | None = None
) -> Iterator[tuple[str, _Node, list[str] | None]]:
    """Yield the children of a node in order, without those before `after`."""
    first = after[0] if after else ""
    if only is not None:
        parts = iter([only] if only in node.below and only >= first else [])
    else:
        parts = node.sorted_from(first)
    for part in parts:
        yield part, node.below[part], after[1:] if after and part == first else None


def _matching_patterns(node: _Node, parts: list[str], at: int) -> Iterator[int]:
    if at == len(parts):
        yield from node.ends
        return
    if (rest := node.below.get(ALL_BELOW)) is not None:
        yield from rest.ends
    for part in (ONE, parts[at]):
        if (child := node.below.get(part)) is not None:
            yield from _matching_patterns(child, parts, at + 1)
