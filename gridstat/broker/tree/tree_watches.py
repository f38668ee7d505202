"""Patterns across clouds: passed to whoever may have what they stand for, and the finds back.

A watch is named by the cloud that keeps it, and said again by it after every join; so nothing of it
needs to be durable here, and what is not said again has ended meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from gridstat.model.cloud import is_pattern
from gridstat.net.command.tree_messages import EndWatch, NamesFound, WatchNames

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_context import TreeContext

WATCHES_MAX: Final = 100_000


class _Watch(Struct, frozen=True):
    pattern: str
    from_child: str
    """Empty if it came from above."""


class TreeWatches:
    """Each is with all children, but the one it came from, that have a cloud it may match."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def watch(self, child: str, message: WatchNames) -> None:
        """From a child, or from above if that is empty."""
        if message.watch not in self._watches and len(self._watches) >= WATCHES_MAX:
            self._context.note("watches_full", watch=message.watch)
            return
        found = self._watches[message.watch] = _Watch(message.pattern, child)
        for other in self._targets(found):
            self._send(other, message.watch, found)
        if child and self._climbs(found):
            self._context.send_parent(structs.replace(message, term=self._context.term))

    def end(self, child: str, message: EndWatch) -> None:
        found = self._watches.get(message.watch)
        if found is not None:
            self._end(message.watch, found)
        elif child:
            # Somebody above may know it yet from an earlier life of this broker.
            self._context.send_parent(structs.replace(message, term=self._context.term))

    def _end(self, name: str, found: _Watch) -> None:
        del self._watches[name]
        over = EndWatch(term=self._context.term, watch=name)
        for other in self._targets(found):
            self._context.send_child(other, over)
        if found.from_child and self._climbs(found):
            self._context.send_parent(over)

    def found(self, message: NamesFound) -> None:
        """Down to the cloud that watches, or up if that is not below."""
        told = structs.replace(message, term=self._context.term)
        child = self._context.state.families.child_of(message.watch.partition("#")[0])
        if child is not None:
            self._context.send_child(child, told)
        else:
            self._context.send_parent(told)

    def child_joined(self, child: str) -> None:
        """Its own it says anew; an end that came while it was away was heard by nobody."""
        self.forget(child)
        self.send_all(child)

    def send_all(self, child: str) -> None:
        """All that a child may have finds for."""
        for name, found in self._watches.items():
            if child in self._targets(found):
                self._send(child, name, found)

    def parent_joined(self) -> None:
        """Those from above it says anew."""
        self.forget("")
        for name, found in self._watches.items():
            if found.from_child and self._climbs(found):
                self._context.send_parent(
                    WatchNames(term=self._context.term, watch=name, pattern=found.pattern)
                )

    def forget(self, child: str) -> None:
        """All that came from a child, or from above if that is empty."""
        for name, found in list(self._watches.items()):
            if found.from_child == child:
                self._end(name, found)

    def _send(self, child: str, name: str, found: _Watch) -> None:
        self._context.send_child(
            child, WatchNames(term=self._context.term, watch=name, pattern=found.pattern)
        )

    def _targets(self, found: _Watch) -> list[str]:
        families = self._context.state.families
        cloud = found.pattern.partition("/")[0]
        if not is_pattern(cloud):
            child = families.child_of(cloud)
            return [] if child is None or child == found.from_child else [child]
        return [child for child in sorted(families.children) if child != found.from_child]

    def _climbs(self, found: _Watch) -> bool:
        cloud = found.pattern.partition("/")[0]
        return is_pattern(cloud) or self._context.state.families.child_of(cloud) is None
