"""What all parts of a broker above clouds share: its state, its turn, and who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.tree_operations import TreeOperation
from gridstat.broker.unit_of_work import UnitOfWork, ignore_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gridstat.broker.context import Outside
    from gridstat.broker.tree.tree_settings import TreeSettings
    from gridstat.broker.tree.tree_state import TreeState
    from gridstat.net.command.messages import Message


LATER_TIMER: Final = "later"
_COUNT_BITS: Final = 32
_COUNT_MAX: Final = (1 << _COUNT_BITS) - 1
_TERM_MAX: Final = (1 << 31) - 1


class TreeContext(UnitOfWork[TreeOperation]):
    """`joined` are the children that are there now; the parent is there once it has answered."""

    def __init__(self, settings: TreeSettings, outside: Outside, state: TreeState) -> None:
        super().__init__(state)
        self.settings = settings
        self.outside = outside
        self.state = state
        self.joined: set[str] = set()
        self.is_parent_joined = False
        self.unsettled_until_ns = 0
        self._later: list[Callable[[], None]] = []
        self._asked_count = 0

    def unsettle(self) -> None:
        """Somebody has come or gone: what is known of the scope may be incomplete for a while."""
        self.unsettled_until_ns = self.now_ns + self.settings.settle_after_ns

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def has_parent(self) -> bool:
        return bool(self.settings.parent)

    @property
    def is_placed(self) -> bool:
        """Whether its place is known: until then its channels have no number that is theirs."""
        return not self.has_parent or self.state.placed is not None

    def next_question(self) -> int:
        """A number for what is asked of a child, by which the child marks its answer.

        Of no other life of this broker: a child may still be busy with that one's questions. Never
        0, which is the mark of those who know of none.
        """
        self._asked_count = self._asked_count % _COUNT_MAX + 1
        return (self.term & _TERM_MAX) << _COUNT_BITS | self._asked_count

    def send_child(self, child: str, message: Message) -> None:
        """To a child that is there; for another it would be lost, and is said when it joins."""
        if child in self.joined:
            self.send(f"broker/{child}", message)

    def send_parent(self, message: Message) -> None:
        if self.is_parent_joined:
            self.send(f"broker/{self.settings.parent}", message)

    def decide(
        self,
        operations: Sequence[TreeOperation],
        then: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        """`commit`, for those who need not know what was applied."""
        self.commit(operations, lambda _: then(), failed)

    def when_durable(self, say: Callable[[], None]) -> None:
        """What is said may rest on operations that are still on their way to the disk.

        If those fail, it is not said: whoever asked says it again, or whoever wrote them does.
        """
        if self.pending_count:
            self.decide((), say, ignore_failure)
        else:
            say()

    def insist(
        self, operations: Callable[[], Sequence[TreeOperation]], then: Callable[[], None]
    ) -> None:
        """For what must become durable in the end: tried again, as long as it yields anything."""
        found = operations()
        if found:
            self.decide(found, then, lambda _: self.later(lambda: self.insist(operations, then)))

    def later(self, again: Callable[[], None]) -> None:
        """A little after a write has failed."""
        self._later.append(again)
        self.set_timer(LATER_TIMER, self.settings.retry_after_ns)

    def try_again(self) -> None:
        later, self._later = self._later, []
        for again in later:
            again()
