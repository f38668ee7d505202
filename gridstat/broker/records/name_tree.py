"""Names and patterns as trees of their parts, so that a look-up costs the depth of a name.

Which names a pattern stands for, and which patterns a new name answers to: both walks skip all
that cannot match, however much is registered. The law itself is `model.cloud.matches`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

ONE: Final = "*"
ALL_BELOW: Final = "**"


class _Node:
    """`ends` holds what is registered under exactly the parts that lead here."""

    __slots__ = ("below", "ends")

    def __init__(self) -> None:
        self.below: dict[str, _Node] = {}
        self.ends: set[int] = set()


class NameTree:
    """Numbers by name; a number stands under one name, and empty branches are cut off."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, name: str, number: int) -> None:
        node = self._root
        for part in name.split("/"):
            node = node.below.setdefault(part, _Node())
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
            del parent.below[part]

    @property
    def has_branches(self) -> bool:
        return bool(self._root.below)

    def matching(self, pattern: str) -> Iterator[int]:
        """Numbers of the names that a pattern (or a plain name) stands for, in name order."""
        return _named(self._root, pattern.split("/"), 0)

    def answering(self, name: str) -> list[int]:
        """Numbers of the patterns that stand for a name, ascending."""
        return sorted(_patterns(self._root, name.split("/"), 0))


def _named(node: _Node, parts: list[str], at: int) -> Iterator[int]:
    if at == len(parts):
        yield from sorted(node.ends)
        return
    part = parts[at]
    if part == ALL_BELOW:
        for _, child in sorted(node.below.items()):
            yield from _everything(child)
    elif part == ONE:
        for _, child in sorted(node.below.items()):
            yield from _named(child, parts, at + 1)
    elif (child_ := node.below.get(part)) is not None:
        yield from _named(child_, parts, at + 1)


def _everything(node: _Node) -> Iterator[int]:
    yield from sorted(node.ends)
    for _, child in sorted(node.below.items()):
        yield from _everything(child)


def _patterns(node: _Node, parts: list[str], at: int) -> Iterator[int]:
    if at == len(parts):
        yield from node.ends
        return
    if (rest := node.below.get(ALL_BELOW)) is not None:
        yield from rest.ends
    for part in (ONE, parts[at]):
        if (child := node.below.get(part)) is not None:
            yield from _patterns(child, parts, at + 1)
