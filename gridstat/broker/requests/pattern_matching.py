"""Matching of patterns and variables in slices, so that a wide pattern does not delay requests.

A request matches a bounded number of variables itself. The rest is matched slice by slice, each in
a turn of its own. `MatchingLeft` in the journal names a pattern, or a variable, that is not fully
matched; after a restart it is matched from its beginning, and existing contracts are skipped. A
slice whose write fails is tried again by a timer.

After each slice matching pauses for as long as the slice took, from its decision until it was
durable, and for `PAUSES_BESIDE_REQUESTS` times as long while a request is under way. So it occupies
the journal, the routers and those whom they notify for a small part of the time that somebody else
waits for an answer.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from functools import partial
from typing import TYPE_CHECKING, Final

from gridstat.broker.records.operation import Applied
from gridstat.broker.records.operations import MatchingLeft
from gridstat.model.rate_law import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from gridstat.broker.context import BrokerContext
    from gridstat.broker.records.operations import Operation, PatternHeld, Subscribed
    from gridstat.broker.records.registry import Publication
    from gridstat.broker.requests.pending_grants import PendingGrants
    from gridstat.broker.requests.request_intake import RequestIntake

    GrantMatch: TypeAlias = Callable[
        [PatternHeld, Publication, Applied, list[Operation], list[Subscribed]], str
    ]

    Left: TypeAlias = tuple[int, str]
    """Pattern, or else name, that is not fully matched."""

MATCH_TIMER: Final = "match"
PAUSES_BESIDE_REQUESTS: Final = 4
PAUSE_NS_MAX: Final = NS_PER_S // 10
"""Bound of a pause, for a disk that stalls."""
NOTE_NS: Final = NS_PER_S
NOTES_MAX: Final = 10
"""Refusals that are logged within `NOTE_NS`."""


class PatternMatching:
    """`registry.matching_left` lists unfinished patterns and names, durably.

    `_lines` has them by who has caused them: the subscriber of a pattern, the publisher of a name.
    Each has a slice in turn, so that a wide pattern delays only the others of its end-point. Of
    each line the first is in progress: `_waiting` has the names, or the patterns, that it has yet
    to be matched with. At most one slice is being written at a time.
    """

    def __init__(
        self,
        context: BrokerContext,
        requests: RequestIntake,
        grant_match: GrantMatch,
        grants: PendingGrants,
    ) -> None:
        self._context = context
        self._requests = requests
        self._grant_match = grant_match
        self._grants = grants
        self._lines: OrderedDict[str, deque[Left]] = OrderedDict()
        self._waiting: dict[Left, deque[str | int]] = {}
        self._is_writing = False
        self._began_ns = 0
        """Time at which the slice that is being written was decided."""
        self._pause_until_ns = 0
        self._noted_from_ns = -NOTE_NS
        self._noted = 0
        self._not_noted = 0

    def enqueue(self, left: MatchingLeft, applied: Applied, operations: list[Operation]) -> None:
        """Record unfinished matching together with the operations of a request."""
        operations.append(left)
        self._context.effects.apply(left, applied)
        if self._lines:
            self._line_up((left.pattern_id, left.name))
        self.schedule()

    def schedule(self) -> None:
        """Set the timer of the next slice; also after a start."""
        if self._context.registry.matching_left and not self._is_writing:
            pause_ns = max(0, self._pause_until_ns - self._context.now_ns)
            self._context.set_timer(MATCH_TIMER, pause_ns)

    def begin_again(self) -> None:
        """Match from the beginning what is left: a rule may now allow what was passed over."""
        self._lines.clear()
        self._waiting.clear()
        self.schedule()

    def go_on(self, _: Applied) -> None:
        """Match what is left, once it is durable."""
        self.schedule()

    def begin_later(self, _: str) -> None:
        """Ignore a failed write; patterns catch the names that are published from now on."""

    def match_next(self) -> None:
        """Match the next slice."""
        if self._is_writing:
            return
        left = self._next()
        if left is None:
            return
        applied = Applied()
        operations: list[Operation] = []
        matched: list[Subscribed] = []
        waiting = self._waiting[left]
        batch = [
            waiting.popleft()
            for _ in range(min(len(waiting), self._context.settings.catch_at_once))
        ]
        pattern_id, name = left
        for each in batch:
            if isinstance(each, str):
                self._match(pattern_id, each, applied, operations, matched)
            else:
                self._match(each, name, applied, operations, matched)
        if not waiting:
            finished = MatchingLeft(pattern_id=pattern_id, name=name, is_over=True)
            operations.append(finished)
            self._context.effects.apply(finished, applied)
        if not operations:
            self._context.set_timer(MATCH_TIMER, 0)
            return
        self._is_writing = True
        self._began_ns = self._context.now_ns
        then = partial(self._written, left, matched)
        self._context.commit_applied(applied, operations, then, partial(self._retry, left, batch))

    def _next(self) -> Left | None:
        """Return what is matched next, and put its line behind the others."""
        unfinished = self._context.registry.matching_left
        if not self._lines:
            for left in unfinished:
                self._line_up(left)
        while self._lines:
            owner, line = next(iter(self._lines.items()))
            if line and line[0] in unfinished:
                self._lines.move_to_end(owner)
                if line[0] not in self._waiting:
                    self._waiting[line[0]] = self._partners(*line[0])
                return line[0]
            if line:
                self._waiting.pop(line.popleft(), None)
            if not line:
                del self._lines[owner]
        return None

    def _line_up(self, left: Left) -> None:
        pattern_id, name = left
        registry = self._context.registry
        held, publication = registry.patterns.get(pattern_id), registry.publications.get(name)
        owner = held.subscriber if held else publication.publisher if publication else ""
        self._lines.setdefault(owner, deque()).append(left)

    def _written(self, left: Left, matched: list[Subscribed], _: Applied) -> None:
        self._is_writing = False
        now_ns = self._context.now_ns
        pauses = PAUSES_BESIDE_REQUESTS if self._requests.has_any_open() else 1
        self._pause_until_ns = now_ns + min(pauses * (now_ns - self._began_ns), PAUSE_NS_MAX)
        self._grants.notify_matched(matched)
        if not self._waiting.get(left, True):
            del self._waiting[left]
        self.schedule()

    def _retry(self, left: Left, batch: list[str | int], _: str) -> None:
        """Return a slice whose write failed to the queue, and try it again by a timer."""
        self._is_writing = False
        waiting = self._waiting.get(left)
        if waiting is not None:
            waiting.extendleft(reversed(batch))
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
            self.note_refused(pattern_id, refusal)

    def note_refused(self, pattern_id: int, reason: str) -> None:
        """Log a refusal; a few in a second, and then how many were left out."""
        now_ns = self._context.now_ns
        if now_ns - self._noted_from_ns >= NOTE_NS:
            self._noted_from_ns, self._noted = now_ns, 0
        if self._noted >= NOTES_MAX:
            self._not_noted += 1
            return
        self._noted += 1
        others, self._not_noted = self._not_noted, 0
        more = {"not_noted_before": others} if others else {}
        self._context.note("pattern_refused", pattern_id=pattern_id, reason=reason, **more)

    def _partners(self, pattern_id: int, name: str) -> deque[str | int]:
        """Return the patterns that match a name, or the names that a pattern matches."""
        registry = self._context.registry
        if not pattern_id:
            return deque(registry.pattern_tree.matching_patterns(name))
        held = registry.patterns.get(pattern_id)
        if held is None:
            return deque()
        return deque(found.variable.name for found in registry.matching(held.pattern))
