"""Patterns catch a few variables at a time, so that one wide pattern does not hold up the others.

What a request itself catches is bounded; the rest is matched turn by turn. That something is left
is durable, and how much of it is not: after a start that pattern, or name, is matched once more.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import MatchingLeft

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, PatternHeld, Subscribed
    from gridstat.broker.records.registry import Publication
    from gridstat.broker.requests.pending_grants import PendingGrants

    Catch: TypeAlias = Callable[
        [PatternHeld, Publication, Applied, list[Operation], list[Subscribed]], str
    ]

CATCH_TIMER: Final = "catch"


class PatternMatching:
    """What is left to match stands in the registry, durably; `_waiting` are the pairs of a pattern
    and a name of the first of it, and one slice of them is being written at a time."""

    def __init__(self, context: BrokerContext, catch: Catch, grants: PendingGrants) -> None:
        self._context = context
        self._catch = catch
        self._grants = grants
        self._current: tuple[int, str] | None = None
        self._waiting: deque[tuple[int, str]] = deque()
        self._is_writing = False

    def later(self, left: MatchingLeft, applied: Applied, operations: list[Operation]) -> None:
        """Match this in the turns to come, together with the operations that it follows from."""
        operations.append(left)
        self._context.effects.apply(left, applied)
        self.go_on()

    def go_on(self) -> None:
        """Look at the next few in a turn of their own; also after a start."""
        if self._context.registry.catching and not self._is_writing:
            self._context.set_timer(CATCH_TIMER, 0)

    def catch_some(self) -> None:
        """Look at the next few."""
        if self._is_writing:
            return
        if self._current is None:
            self._current = next(iter(self._context.registry.catching), None)
            if self._current is None:
                return
            self._waiting.extend(self._pairs(*self._current))
        applied = Applied()
        operations: list[Operation] = []
        caught: list[Subscribed] = []
        looked_at = [
            self._waiting.popleft()
            for _ in range(min(len(self._waiting), self._context.settings.catch_at_once))
        ]
        for pattern_id, name in looked_at:
            self._look_at(pattern_id, name, applied, operations, caught)
        if not self._waiting:
            pattern_id, name = self._current
            over = MatchingLeft(pattern_id=pattern_id, name=name, is_over=True)
            operations.append(over)
            self._context.effects.apply(over, applied)
        if not operations:
            self._context.set_timer(CATCH_TIMER, 0)
            return
        self._is_writing = True
        then = partial(self._written, caught)
        self._context.commit_applied(applied, operations, then, partial(self._again, looked_at))

    def _written(self, caught: list[Subscribed], _: Applied) -> None:
        self._is_writing = False
        self._grants.notify_matched(caught)
        if not self._waiting:
            self._current = None
        self.go_on()

    def _again(self, looked_at: list[tuple[int, str]], _: str) -> None:
        """The disk is full: nothing was caught, and it is tried again when there may be room."""
        self._is_writing = False
        self._waiting.extendleft(reversed(looked_at))
        self._context.set_timer(CATCH_TIMER, self._context.settings.retry_after_ns)

    def _look_at(
        self,
        pattern_id: int,
        name: str,
        applied: Applied,
        operations: list[Operation],
        caught: list[Subscribed],
    ) -> None:
        registry = self._context.registry
        held = registry.patterns.get(pattern_id)
        publication = registry.publications.get(name)
        if held is None or publication is None:
            return  # One of both has ended meanwhile.
        having = (registry.subscriptions[number].record for number in publication.subscriptions)
        if any(record.pattern_id == pattern_id for record in having):
            return
        words = self._catch(held, publication, applied, operations, caught)
        if words:
            self._context.note("pattern_refused", pattern_id=pattern_id, reason=words)

    def _pairs(self, pattern_id: int, name: str) -> list[tuple[int, str]]:
        registry = self._context.registry
        if not pattern_id:
            return [(number, name) for number in registry.pattern_tree.answering(name)]
        held = registry.patterns.get(pattern_id)
        if held is None:
            return []
        return [(pattern_id, found.variable.name) for found in registry.matching(held.pattern)]
