"""Matching of patterns and variables in slices, so that a wide pattern does not delay requests.

A request matches a bounded number of variables itself. The rest is matched slice by slice, each in
a turn of its own. `MatchingLeft` in the journal names a pattern, or a variable, that is not fully
matched; after a restart it is matched from its beginning, and existing contracts are skipped. A
slice whose write fails is tried again by a timer.
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

    GrantMatch: TypeAlias = Callable[
        [PatternHeld, Publication, Applied, list[Operation], list[Subscribed]], str
    ]

MATCH_TIMER: Final = "match"


class PatternMatching:
    """`registry.matching_left` lists unfinished patterns and names, durably.

    `_current` is the one in progress, and `_waiting` holds its pairs of pattern and name. At most
    one slice is being written at a time.
    """

    def __init__(
        self, context: BrokerContext, grant_match: GrantMatch, grants: PendingGrants
    ) -> None:
        self._context = context
        self._grant_match = grant_match
        self._grants = grants
        self._current: tuple[int, str] | None = None
        self._waiting: deque[tuple[int, str]] = deque()
        self._is_writing = False

    def enqueue(self, left: MatchingLeft, applied: Applied, operations: list[Operation]) -> None:
        """Record unfinished matching together with the operations of a request."""
        operations.append(left)
        self._context.effects.apply(left, applied)
        self.schedule()

    def schedule(self) -> None:
        """Set the timer of the next slice; also after a start."""
        if self._context.registry.matching_left and not self._is_writing:
            self._context.set_timer(MATCH_TIMER, 0)

    def match_next(self) -> None:
        """Match the next slice."""
        if self._is_writing:
            return
        if self._current is None:
            self._current = next(iter(self._context.registry.matching_left), None)
            if self._current is None:
                return
            self._waiting.extend(self._pairs(*self._current))
        applied = Applied()
        operations: list[Operation] = []
        matched: list[Subscribed] = []
        batch = [
            self._waiting.popleft()
            for _ in range(min(len(self._waiting), self._context.settings.catch_at_once))
        ]
        for pattern_id, name in batch:
            self._match(pattern_id, name, applied, operations, matched)
        if not self._waiting:
            pattern_id, name = self._current
            finished = MatchingLeft(pattern_id=pattern_id, name=name, is_over=True)
            operations.append(finished)
            self._context.effects.apply(finished, applied)
        if not operations:
            self._context.set_timer(MATCH_TIMER, 0)
            return
        self._is_writing = True
        then = partial(self._written, matched)
        self._context.commit_applied(applied, operations, then, partial(self._retry, batch))

    def _written(self, matched: list[Subscribed], _: Applied) -> None:
        self._is_writing = False
        self._grants.notify_matched(matched)
        if not self._waiting:
            self._current = None
        self.schedule()

    def _retry(self, batch: list[tuple[int, str]], _: str) -> None:
        """Return a slice whose write failed to the queue, and try it again by a timer."""
        self._is_writing = False
        self._waiting.extendleft(reversed(batch))
        self._context.set_timer(MATCH_TIMER, self._context.settings.retry_after_ns)

    def _match(
        self,
        pattern_id: int,
        name: str,
        applied: Applied,
        operations: list[Operation],
        matched: list[Subscribed],
    ) -> None:
        registry = self._context.registry
        held = registry.patterns.get(pattern_id)
        publication = registry.publications.get(name)
        if held is None or publication is None:
            return  # The pattern or the variable has ended meanwhile.
        contracts = (registry.subscriptions[number].record for number in publication.subscriptions)
        if any(record.pattern_id == pattern_id for record in contracts):
            return
        refusal = self._grant_match(held, publication, applied, operations, matched)
        if refusal:
            self._context.note("pattern_refused", pattern_id=pattern_id, reason=refusal)

    def _pairs(self, pattern_id: int, name: str) -> list[tuple[int, str]]:
        registry = self._context.registry
        if not pattern_id:
            return [(number, name) for number in registry.pattern_tree.matching_patterns(name)]
        held = registry.patterns.get(pattern_id)
        if held is None:
            return []
        return [(pattern_id, found.variable.name) for found in registry.matching(held.pattern)]
