"""Patterns across clouds: those of our end-points go up, those of others are answered from here.

WatchNames asks for the names of a pattern, now and later; NamesFound returns them in pages,
possibly repeated; EndWatch ends the watch. Neither side waits for an answer. After each join our
patterns are sent again, and the parent's watches are forgotten until the parent repeats them; so a
restart needs no stored watches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.name_tree import NameTree
from gridstat.broker.records.parent_state import contract_name, contract_number
from gridstat.model.access_rules import Action, Wish
from gridstat.model.cloud import check_pattern, matches
from gridstat.model.errors import GridStatError
from gridstat.net.command.session_messages import MANY_MAX
from gridstat.net.command.tree_messages import EndWatch, NamesFound, WatchNames

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.broker.segments.parent_session import ParentSession
    from gridstat.broker.segments.remote_contracts import RemoteContracts


class PatternWatches:
    """Watches of both directions; `_watches` holds the parent's of the present session."""

    def __init__(
        self, context: BrokerContext, session: ParentSession, contracts: RemoteContracts
    ) -> None:
        self._context = context
        self._session = session
        self._contracts = contracts
        self._watches: dict[str, tuple[int, WatchNames]] = {}
        self._names: dict[int, str] = {}
        self._tree = NameTree()
        self._last_number = 0

    # Patterns of our end-points.

    def watch(self, pattern_id: int) -> None:
        """Send WatchNames for a pattern, unless it can only match names of this cloud."""
        registry = self._context.registry
        held = registry.patterns.get(pattern_id)
        if held is not None and held.pattern.partition("/")[0] != registry.cloud:
            watch = contract_name(registry.cloud, pattern_id)
            self._session.send(
                WatchNames(
                    term=self._session.term,
                    watch=watch,
                    pattern=held.pattern,
                    reader=held.subscriber,
                )
            )

    def watch_all(self) -> None:
        for pattern_id in sorted(self._context.registry.patterns):
            self.watch(pattern_id)

    def found(self, message: NamesFound) -> None:
        """Request contracts for the names found; end the watch of a pattern that has ended."""
        registry = self._context.registry
        pattern_id = contract_number(registry.cloud, message.watch)
        held = registry.patterns.get(pattern_id)
        if held is None:
            self._session.send(EndWatch(term=self._session.term, watch=message.watch))
            return
        self._contracts.request_matches(
            pattern_id, [name for name in message.names if matches(held.pattern, name)]
        )

    # Patterns of other clouds.

    def clear(self) -> None:
        """Forget the parent's watches at the start of a session."""
        self._watches.clear()
        self._names.clear()
        self._tree = NameTree()

    def begin(self, message: WatchNames) -> None:
        try:
            check_pattern(message.pattern)
        except GridStatError as error:
            self._context.note("watch_refused", watch=message.watch, reason=str(error.args[0]))
            return
        self._remove(message.watch)  # The parent may repeat a watch with another pattern.
        self._last_number += 1
        self._watches[message.watch] = self._last_number, message
        self._names[self._last_number] = message.watch
        self._tree.add(message.pattern, self._last_number)
        self._offer(message)

    def offer_again(self) -> None:
        """Send all names of all watches again: rules may allow more of them."""
        for _, message in list(self._watches.values()):
            self._offer(message)

    def _offer(self, message: WatchNames) -> None:
        names = [
            found.variable.name
            for found in self._context.registry.matching(message.pattern)
            if self._may_have(message, found.variable.name)
        ]
        for at in range(0, len(names), MANY_MAX):
            self._send_names(message.watch, tuple(names[at : at + MANY_MAX]))

    def _may_have(self, message: WatchNames, name: str) -> bool:
        """Return whether the reader of another cloud may have, and so learn of, a name."""
        wish = Wish(message.reader, Action.SUBSCRIBE, name)
        return self._context.permissions.allows(wish)

    def end(self, message: EndWatch) -> None:
        self._remove(message.watch)

    def _remove(self, watch: str) -> None:
        found = self._watches.pop(watch, None)
        if found is not None:
            number, message = found
            del self._names[number]
            self._tree.discard(message.pattern, number)

    def published(self, name: str) -> None:
        if name in self._context.registry.publications:
            for number in self._tree.matching_patterns(name):
                watch = self._names[number]
                if self._may_have(self._watches[watch][1], name):
                    self._send_names(watch, (name,))

    def _send_names(self, watch: str, names: tuple[str, ...]) -> None:
        self._session.send(NamesFound(term=self._session.term, watch=watch, names=names))
