"""Committing: children order their segments, and say when their routers have confirmed."""

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
WORD_LENGTH_MAX: Final = 1_024
"""Of what a child says is not as it should be; all of it has to fit into one frame again."""


@dataclass(slots=True)
class _Waiting:
    """Those who have not confirmed yet, what the others had to say, and what follows."""

    missing: set[str]
    degraded: list[str]
    until_ns: int
    up: Callable[[tuple[str, ...]], None]
    late: Callable[[tuple[str, ...]], None]
    is_late: bool = False

    def words(self) -> tuple[str, ...]:
        late = [f"broker {child} has not confirmed yet" for child in sorted(self.missing)]
        return few_words((*self.degraded, *late))


class SegmentCommits:
    """Whoever waits is told when all have confirmed, and once before if the time is over.

    Time alone makes nothing up: a child that is away is waited for, however long that takes.
    """

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
        """Both are given the words of what is not as it should be."""
        waiting = _Waiting(set(children), [], 0, up, late or _nothing)
        self._waiting[key] = waiting
        self._say_to_missing(key, waiting)

    def say_if_late(self, key: Key) -> None:
        """Whoever asks again hears at once what was said when the time was over."""
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.is_late:
            waiting.late(waiting.words())

    def _say_to_missing(self, key: Key, waiting: _Waiting) -> None:
        within_ns = self._context.settings.up_within_ns * self._context.state.families.height
        waiting.until_ns = self._context.now_ns + within_ns
        for child in sorted(waiting.missing):
            self.say(key, child)
        self._due.add(waiting.until_ns, key)

    def say(self, key: Key, child: str) -> None:
        self._context.send_child(
            child, Commit(term=self._context.term, contract=key[0], generation=key[1])
        )

    def forget(self, key: Key) -> None:
        self._waiting.pop(key, None)

    def is_up(self, key: Key, child: str, degraded: Iterable[str] = ()) -> None:
        waiting = self._waiting.get(key)
        if waiting is None or child not in waiting.missing:
            return
        waiting.missing.discard(child)
        waiting.degraded.extend(word[:WORD_LENGTH_MAX] for word in degraded)
        if not waiting.missing:
            del self._waiting[key]
            waiting.up(waiting.words())

    def child_joined(self, child: str) -> None:
        for key, waiting in list(self._waiting.items()):
            if child in waiting.missing:
                self.say(key, child)

    def expire(self) -> None:
        for until_ns, key in self._due.take_due():
            waiting = self._waiting.get(key)
            if waiting is None or waiting.until_ns != until_ns:
                continue
            self._say_to_missing(key, waiting)
            if not waiting.is_late:
                waiting.is_late = True
                waiting.late(waiting.words())


def _nothing(_: tuple[str, ...]) -> None:
    """Nobody is told before all have confirmed."""
