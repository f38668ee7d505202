"""Context that all components of a broker above clouds share.

The context holds the durable state, the unit of work of the present event, the children that have
joined, and the state of the session with the parent.
"""

from __future__ import annotations

from enum import Enum, auto
from functools import partial
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


class ParentSessionState(Enum):
    """State of the session with the parent; `membership.py` draws the transitions."""

    ABSENT = auto()
    JOINING = auto()
    PLACING = auto()
    JOINED = auto()
    MOVING = auto()


class TreeContext(UnitOfWork[TreeOperation]):
    """`joined` are the children whose sessions count at present."""

    def __init__(self, settings: TreeSettings, outside: Outside, state: TreeState) -> None:
        super().__init__(state)
        self.settings = settings
        self.outside = outside
        self.state = state
        self.joined: set[str] = set()
        self.parent_state = ParentSessionState.ABSENT
        self.unsettled_until_ns = 0
        self._later: list[Callable[[], None]] = []
        self._request_count = 0

    def unsettle(self) -> None:
        """Note that a child has joined or left: its borders may not all be reported yet."""
        self.unsettled_until_ns = self.now_ns + self.settings.settle_after_ns

    @property
    def term(self) -> int:
        return self.state.term

    @property
    def has_parent(self) -> bool:
        return bool(self.settings.parent)

    @property
    def is_parent_joined(self) -> bool:
        return self.parent_state in {ParentSessionState.JOINED, ParentSessionState.MOVING}

    @property
    def is_placed(self) -> bool:
        """True if the place of this broker is known; its channels have no final number before."""
        return not self.has_parent or self.state.placed is not None

    def next_request(self) -> int:
        """Return a number for a request to a child, which the child copies into its reply.

        The number contains the term, since a child may still work on requests from before a
        restart. The number is never 0, which means a child of a release without such numbers.
        """
        self._request_count = self._request_count % _COUNT_MAX + 1
        return (self.term & _TERM_MAX) << _COUNT_BITS | self._request_count

    def send_child(self, child: str, message: Message) -> None:
        """Send to a joined child; components send again, after a join, what an absent one needs."""
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
        """Make operations durable like `commit`, without the record of what was applied."""
        self.commit(operations, lambda _: then(), failed)

    def when_durable(self, send: Callable[[], None]) -> None:
        """Send once every pending operation is durable, since the message may depend on them.

        If a pending operation fails, nothing is sent: the request is repeated by its sender, or by
        the component that repeats the operation.
        """
        if self.pending_count:
            self.decide((), send, ignore_failure)
        else:
            send()

    def insist(
        self, operations: Callable[[], Sequence[TreeOperation]], then: Callable[[], None]
    ) -> None:
        """Make operations durable, and retry after a failure while `operations` returns any."""
        found = operations()
        if found:
            self.decide(found, then, partial(self._insist_later, operations, then))

    def _insist_later(
        self,
        operations: Callable[[], Sequence[TreeOperation]],
        then: Callable[[], None],
        reason: str,
    ) -> None:
        del reason
        self.later(partial(self.insist, operations, then))

    def later(self, again: Callable[[], None]) -> None:
        """Call a function again a little after a write has failed."""
        self._later.append(again)
        self.set_timer(LATER_TIMER, self.settings.retry_after_ns)

    def try_again(self) -> None:
        later, self._later = self._later, []
        for again in later:
            again()
