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
from typing import TYPE_CHECKING, Final

from gridstat.broker.requests.outcomes import few_words
from gridstat.broker.tree.deadlines import Deadlines
from gridstat.net.command.segment_messages import Commit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from gridstat.broker.tree.segment_releases import Key
    from gridstat.broker.tree.tree_context import TreeContext

UP_TIMER: Final = "up"
TEXT_LENGTH_MAX: Final = 1_024
"""Characters that are kept of a text of a child, so that all texts fit into one frame."""


@dataclass(slots=True)
class _Waiting:
    """Open commit: the children that are missing, and the texts of the others."""

    missing: set[str]
    degraded: list[str]
    until_ns: int
    up: Callable[[tuple[str, ...]], None]
    late: Callable[[tuple[str, ...]], None]
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

    def start(
        self,
        key: Key,
        children: Iterable[str],
        up: Callable[[tuple[str, ...]], None],
        late: Callable[[tuple[str, ...]], None] | None = None,
    ) -> None:
        """Call `up` when all have confirmed, and `late` once before if that takes too long.

        Both get texts about whatever is degraded or missing.
        """
        waiting = _Waiting(set(children), [], 0, up, late or _ignore)
        self._waiting[key] = waiting
        self._send_to_missing(key, waiting)

    def report_if_late(self, key: Key) -> None:
        """Call `late` again for a request that is repeated."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.is_late:
            waiting.late(waiting.texts())

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
            waiting.up(waiting.texts())

    def child_joined(self, child: str) -> None:
        for key, waiting in list(self._waiting.items()):
            if child in waiting.missing:
                self.send(key, child)

    def expire(self) -> None:
        for until_ns, key in self._due.take_due():
            waiting = self._waiting.get(key)
            if waiting is None or waiting.until_ns != until_ns:
                continue
            self._send_to_missing(key, waiting)
            if not waiting.is_late:
                waiting.is_late = True
                waiting.late(waiting.texts())


def _ignore(_: tuple[str, ...]) -> None:
    """Ignore that a commit is late."""
