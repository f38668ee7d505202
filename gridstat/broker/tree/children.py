"""Children of a broker above clouds: the clouds below each, and the highest known term of each."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from gridstat.broker.tree.tree_operations import ChildAdded, ChildRemoved, ChildReported
from gridstat.model.errors import LayoutError
from gridstat.net.command.tree_messages import HEIGHT_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gridstat.broker.records.operation import Applied
    from gridstat.broker.tree.tree_operations import TreeOperation


class Child(msgspec.Struct):
    """Durable facts about a child; term 0 before its first join."""

    name: str
    term: int = 0
    clouds: tuple[str, ...] = ()
    height: int = 0
    prefixes: tuple[int, ...] = ()


class Children:
    """Children by name; every cloud lies below one child at most."""

    def __init__(self, children: Iterable[str]) -> None:
        self.children: dict[str, Child] = {name: Child(name) for name in children}
        self.version = 0
        self._height = 1
        self._height_version = -1
        self._child_of: dict[str, str] = {}

    def child_of(self, cloud: str) -> str | None:
        """Return the child below which a cloud lies."""
        return self._child_of.get(cloud)

    def child_at(self, name: str) -> str | None:
        """Return the child below which a router, variable or end-point of this name lies."""
        return self._child_of.get(name.partition("/")[0])

    def clouds(self) -> tuple[str, ...]:
        return tuple(sorted(self._child_of))

    @property
    def height(self) -> int:
        """Number of levels down to the farthest cloud, at most `HEIGHT_MAX`."""
        if self._height_version != self.version:
            self._height_version = self.version
            highest = max((child.height for child in self.children.values()), default=0)
            self._height = min(max(0, highest) + 1, HEIGHT_MAX)
        return self._height

    def prefixes(self) -> frozenset[int]:
        """Return the channel prefixes that children have reported for brokers below."""
        return frozenset(one for child in self.children.values() for one in child.prefixes)

    def check(self, name: str, clouds: Iterable[str]) -> None:
        """Raise if another child has one of these clouds."""
        for cloud in clouds:
            found = self._child_of.get(cloud, name)
            if found != name:
                raise LayoutError(
                    f"cloud {cloud} lies below {found} already, and {name} names it too",
                    hint="a cloud has one parent; remove it from one of the two",
                )

    def apply(self, operation: ChildReported | ChildAdded | ChildRemoved, done: Applied) -> None:
        name = operation.name
        before = self.children.get(name)
        match operation:
            case ChildReported():
                self._put(name, _child_from(operation))
            case ChildAdded():
                self._put(name, before or Child(name))
            case ChildRemoved():
                self._put(name, None)
        done.undo.append(lambda: self._put(name, before))

    def operations(self, file_children: Iterable[str]) -> Iterator[TreeOperation]:
        given = set(file_children)
        for name in sorted(given - self.children.keys()):
            yield ChildRemoved(name=name)
        for name, child in sorted(self.children.items()):
            if name not in given:
                yield ChildAdded(name=name)
            if child.term:
                yield ChildReported(
                    name=name,
                    term=child.term,
                    clouds=child.clouds,
                    height=child.height,
                    prefixes=child.prefixes,
                )

    def _put(self, name: str, child: Child | None) -> None:
        self.version += 1
        before = self.children.pop(name, None)
        for cloud in before.clouds if before is not None else ():
            self._child_of.pop(cloud, None)
        if child is not None:
            self.children[name] = child
            for cloud in child.clouds:
                self._child_of[cloud] = name


def _child_from(report: ChildReported) -> Child:
    return Child(report.name, report.term, report.clouds, report.height, report.prefixes)
