"""Commit of segments: send Commit to each child until every child has answered SegmentUp.

States of a commit: waiting, late, complete.

    waiting --SegmentUp from every child--> complete
    waiting --`up_within_ns` has passed--> late --SegmentUp from every child--> complete

Messages. A child that gets `Commit` makes it durable, orders the paths from its routers, and sends
`SegmentUp` when the routers have confirmed, with texts about whatever is degraded.

Timeout. Commit is sent again to the children that are missing, and the caller is notified once that
the commit is late. Time alone completes nothing: an absent child is waited for without a limit,
and gets Commit again when it joins.

Restart. Open commits are not durable; they follow from holdings in the stage COMMITTED.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from gridstat.broker.requests.outcomes import few_words
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.net.command.segment_messages import Commit

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import Holding

UP_TIMER: Final = "up"
TEXT_LENGTH_MAX: Final = 1_024
"""Characters that are kept of a text of a child, so that all texts fit into one frame."""


class CommitOwner(Protocol):
    """Component that has started a commit; the texts say what is degraded or missing."""

    def commit_complete(self, holding: Holding, texts: tuple[str, ...]) -> None: ...

    def commit_late(self, holding: Holding, texts: tuple[str, ...]) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """Open commit: the children that are missing, and the texts of the others."""

    missing: set[str]
    degraded: list[str]
    until_ns: int
    holding: Holding
    owner: CommitOwner
    is_late: bool = False

    def texts(self) -> tuple[str, ...]:
        late = [f"broker {child} has not confirmed yet" for child in sorted(self.missing)]
        return few_words((*self.degraded, *late))


class SegmentCommits:
    """Open commits by key."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._waiting: dict[Key, _Waiting] = {}
        self._due: Deadlines[Key] = Deadlines(context, UP_TIMER)

    def is_waiting(self, key: Key) -> bool:
        return key in self._waiting

    def start(self, holding: Holding, owner: CommitOwner) -> None:
        """Send Commit to the children of a holding; notify the owner when all have confirmed."""
        waiting = _Waiting(set(holding.children), [], 0, holding, owner)
        self._waiting[holding.key] = waiting
        self._send_to_missing(holding.key, waiting)

    def report_if_late(self, key: Key) -> None:
        """Notify the owner again of a late commit, for a request that is repeated."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.is_late:
            waiting.owner.commit_late(waiting.holding, waiting.texts())

    def _send_to_missing(self, key: Key, waiting: _Waiting) -> None:
        within_ns = self._context.settings.up_within_ns * self._context.state.families.height
        waiting.until_ns = self._context.now_ns + within_ns
        for child in sorted(waiting.missing):
            self.send(key, child)
        self._due.add(waiting.until_ns, key)

    def send(self, key: Key, child: str) -> None:
        self._context.send_child(
            child, Commit(term=self._context.term, contract=key[0], generation=key[1])
        )

    def forget(self, key: Key) -> None:
        self._waiting.pop(key, None)

    def confirm(self, key: Key, child: str, degraded: Iterable[str] = ()) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or child not in waiting.missing:
            return
        waiting.missing.discard(child)
        waiting.degraded.extend(text[:TEXT_LENGTH_MAX] for text in degraded)
        if not waiting.missing:
            del self._waiting[key]
            waiting.owner.commit_complete(waiting.holding, waiting.texts())

    def child_joined(self, child: str) -> None:
        for key, waiting in list(self._waiting.items()):
            if child in waiting.missing:
                self.send(key, child)

    def expire(self) -> None:
        for until_ns, key in self._due.take_due():
            waiting = self._waiting.get(key)
            if waiting is None or waiting.until_ns != until_ns:
                continue  # The deadline of an earlier commit of the same key.
            # Commit is idempotent, so it is sent again to each child that is missing.
            self._send_to_missing(key, waiting)
            if not waiting.is_late:
                waiting.is_late = True
                waiting.owner.commit_late(waiting.holding, waiting.texts())
