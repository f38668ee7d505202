"""Watches of name patterns across clouds.

Messages. `WatchNames` travels from the watching cloud to every child and parent that may have
matching names; `NamesFound` travels back; `EndWatch` follows the path of the watch.

A watch is identified by the cloud that owns it and a number. The owner sends all its watches again
after every join, so nothing is durable here: when a child or the parent joins, its former watches
end, and come again if they still exist. There is no timeout.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct, structs

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.model.cloud import is_pattern
from gridstat.net.command.tree_messages import EndWatch, NamesFound, WatchNames

if TYPE_CHECKING:
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext

WATCHES_MAX: Final = 100_000


class _Watch(Struct, frozen=True):
    pattern: str
    from_child: str
    """Empty if the watch came from the parent."""
    reader: str = ""


class TreeWatches:
    """Each watch is known to all children, except its sender, with a cloud that it may match."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._watches: dict[str, _Watch] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def capability(self) -> TreeCapability:
        """Return the registration of watches."""
        return TreeCapability(
            name="watches",
            child_messages={
                WatchNames: FromChild(self.watch, self._is_of_child),
                EndWatch: FromChild(self.end, self._is_of_child),
                NamesFound: FromChild(self._found_below),
            },
            parent_messages={
                WatchNames: partial(self.watch, ""),
                EndWatch: partial(self.end, ""),
                NamesFound: self.found,
            },
            survey=self._facts,
            child_joined=self.child_joined,
            child_removed=self.forget,
            clouds_changed=self.send_all,
            parent_joined=self.parent_joined,
        )

    def _is_of_child(self, child: str, message: WatchNames | EndWatch) -> bool:
        cloud = message.watch.partition("#")[0]
        if isinstance(message, WatchNames) and message.reader.partition("/")[0] not in {"", cloud}:
            return False  # A cloud speaks for its own end-points only.
        return self._context.state.families.child_of(cloud) == child

    def _found_below(self, child: str, message: NamesFound) -> None:
        del child
        self.found(message)

    def _facts(self) -> Facts:
        return {"watches": len(self)}

    def watch(self, child: str, message: WatchNames) -> None:
        """Begin a watch from a child, or from the parent if `child` is empty."""
        if message.watch not in self._watches and len(self._watches) >= WATCHES_MAX:
            self._context.note("watches_full", watch=message.watch)
            return
        found = self._watches[message.watch] = _Watch(message.pattern, child, message.reader)
        for other in self._targets(found):
            self._send(other, message.watch, found)
        if child and self._climbs(found):
            self._context.send_parent(structs.replace(message, term=self._context.term))

    def end(self, child: str, message: EndWatch) -> None:
        found = self._watches.get(message.watch)
        if found is not None:
            self._end(message.watch, found)
        elif child:
            # A broker above may still know the watch from before a restart of this broker.
            self._context.send_parent(structs.replace(message, term=self._context.term))

    def _end(self, name: str, found: _Watch) -> None:
        del self._watches[name]
        ended = EndWatch(term=self._context.term, watch=name)
        for other in self._targets(found):
            self._context.send_child(other, ended)
        if found.from_child and self._climbs(found):
            self._context.send_parent(ended)

    def found(self, message: NamesFound) -> None:
        """Send finds down to the watching cloud, or up if that cloud is not below."""
        forwarded = structs.replace(message, term=self._context.term)
        child = self._context.state.families.child_of(message.watch.partition("#")[0])
        if child is not None:
            self._context.send_child(child, forwarded)
        else:
            self._context.send_parent(forwarded)

    def child_joined(self, child: str) -> None:
        """End the child's watches, which it sends again if they exist, and send it all others."""
        self.forget(child)
        self.send_all(child)

    def send_all(self, child: str) -> None:
        """Send a child all watches that its clouds may match."""
        for name, found in self._watches.items():
            if child in self._targets(found):
                self._send(child, name, found)

    def parent_joined(self) -> None:
        """End the parent's watches, since it sends them again, and send it those from below."""
        self.forget("")
        for name, found in self._watches.items():
            if found.from_child and self._climbs(found):
                self._context.send_parent(self._message(name, found))

    def forget(self, child: str) -> None:
        """End all watches from a child, or from the parent if `child` is empty."""
        for name, found in list(self._watches.items()):
            if found.from_child == child:
                self._end(name, found)

    def _send(self, child: str, name: str, found: _Watch) -> None:
        self._context.send_child(child, self._message(name, found))

    def _message(self, name: str, found: _Watch) -> WatchNames:
        return WatchNames(
            term=self._context.term, watch=name, pattern=found.pattern, reader=found.reader
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
