"""Patterns across clouds: those of our end-points go up, those of others are answered from here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.name_tree import NameTree
from gridstat.broker.records.parent_state import contract_name, contract_number
from gridstat.model.cloud import check_pattern, matches
from gridstat.model.errors import GridStatError
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import EndWatch, NamesFound, WatchNames

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.segments.remote_contracts import RemoteContracts


class PatternWatches:
    """`_watches` are the parent's, of the present session: it says them anew after a join."""

    def __init__(
        self, context: BrokerContext, link: ParentSession, asking: RemoteContracts
    ) -> None:
        self._context = context
        self._link = link
        self._asking = asking
        self._watches: dict[str, tuple[int, str]] = {}
        self._names: dict[int, str] = {}
        self._tree = NameTree()
        self._last = 0

    # Patterns of our end-points.

    def watch(self, pattern_id: int) -> None:
        """Ask for the names that a pattern stands for, unless they can only be of this cloud."""
        registry = self._context.registry
        held = registry.patterns.get(pattern_id)
        if held is not None and held.pattern.partition("/")[0] != registry.cloud:
            watch = contract_name(registry.cloud, pattern_id)
            self._link.tell(WatchNames(term=self._link.term, watch=watch, pattern=held.pattern))

    def watch_all(self) -> None:
        for pattern_id in sorted(self._context.registry.patterns):
            self.watch(pattern_id)

    def found(self, word: NamesFound) -> None:
        """Names of a pattern; if it has ended since, nobody wants to hear more."""
        registry = self._context.registry
        pattern_id = contract_number(registry.cloud, word.watch)
        held = registry.patterns.get(pattern_id)
        if held is None:
            self._link.tell(EndWatch(term=self._link.term, watch=word.watch))
            return
        self._asking.catch(pattern_id, [name for name in word.names if matches(held.pattern, name)])

    # Patterns of other clouds.

    def forget(self) -> None:
        """A new session."""
        self._watches.clear()
        self._names.clear()
        self._tree = NameTree()

    def begin(self, word: WatchNames) -> None:
        try:
            check_pattern(word.pattern)
        except GridStatError as error:
            self._context.note("watch_refused", watch=word.watch, reason=str(error.args[0]))
            return
        self._forget(word.watch)
        self._last += 1
        self._watches[word.watch] = self._last, word.pattern
        self._names[self._last] = word.watch
        self._tree.add(word.pattern, self._last)
        names = [found.variable.name for found in self._context.registry.matching(word.pattern)]
        for at in range(0, len(names), MANY_MAX):
            self._tell(word.watch, tuple(names[at : at + MANY_MAX]))

    def end(self, word: EndWatch) -> None:
        self._forget(word.watch)

    def _forget(self, watch: str) -> None:
        number, pattern = self._watches.pop(watch, (0, ""))
        if number:
            del self._names[number]
            self._tree.discard(pattern, number)

    def published(self, name: str) -> None:
        if name in self._context.registry.publications:
            for number in self._tree.answering(name):
                self._tell(self._names[number], (name,))

    def _tell(self, watch: str, names: tuple[str, ...]) -> None:
        self._link.tell(NamesFound(term=self._link.term, watch=watch, names=names))
