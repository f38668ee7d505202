"""Leases of variable identifiers, passed down the tree in blocks.

The root counts identifiers up from 1. A broker in the middle leases large blocks from its parent
and gives parts of them to its children.

Messages. A child sends `AskNumbers` with a request number and a count; the parent replies with
`NumbersLeased`, whose count is 0 if it refuses. Children number their requests from 1 within one
journal.

States of a request. GIVEN: a block is in the journal, and every repetition gets the same reply. A
repetition older than the remembered replies is ignored. WAITING: this broker has requested a larger
block from its own parent; the request is recorded in `_waiting`, in memory only. REFUSED: the
child has reached its limit, or no identifiers are left.

No reply is sent before its block is durable, and a failed write is tried again. There is no
timeout: a child repeats its open requests at every join, and so does this broker towards its
parent, for requests that the journal holds as asked and not yet answered. A child with a new
journal gets new blocks; the blocks of the old journal stay leased.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gridstat.broker.tree.tree_capability import FromChild, TreeCapability
from gridstat.broker.tree.tree_operations import (
    BlockGiven,
    BlockLeased,
    BlockRequested,
    IdentifiersKept,
)
from gridstat.model.errors import LayoutError
from gridstat.net.command.tree_messages import AskNumbers, NumbersLeased

if TYPE_CHECKING:
    from gridstat.broker.tree.identifier_blocks import Block
    from gridstat.broker.tree.tree_capability import Facts
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import TreeOperation

WAITING_MAX: Final = 16
"""Maximum number of waiting requests of one child: an open one, and some from before a restart."""
ASKED_MAX: Final = 4
"""Maximum number of open requests to the parent; further children wait until one is answered."""


class IdentifierLeases:
    """A child's request waits here while the parent is asked for a larger block."""

    def __init__(self, context: TreeContext) -> None:
        self._context = context
        self._waiting: dict[tuple[str, int], int] = {}
        self._journals: dict[str, str] = {}

    def capability(self) -> TreeCapability:
        """Return the registration of identifiers."""
        numbers = self._context.state.numbers
        return TreeCapability(
            name="identifiers",
            child_messages={AskNumbers: FromChild(self.ask)},
            parent_messages={NumbersLeased: self.leased},
            survey=self._facts,
            operations={
                IdentifiersKept: numbers.apply,
                BlockGiven: numbers.apply,
                BlockRequested: numbers.apply,
                BlockLeased: numbers.apply,
            },
            snapshot=numbers.operations,
            parent_joined=self.parent_joined,
        )

    def _facts(self) -> Facts:
        return {"numbers_given": self._context.state.numbers.last}

    def identifiers_kept_by(self, child: str, numbers_used: int) -> list[TreeOperation]:
        """Return the operation by which a cloud keeps the identifiers that it gave out alone.

        Raise if another cloud may have given out the same ones.
        """
        if not numbers_used:
            return []
        numbers = self._context.state.numbers
        kept = numbers.kept
        if kept is not None and kept.child == child and numbers_used <= kept.count:
            return []
        given = f"{child} has given out identifiers up to {numbers_used} before it had a parent"
        if self._context.has_parent:
            # If others have the same, the root would refuse everything below this broker.
            raise LayoutError(
                f"{given}, and only a root knows whether others have the same: let it join a "
                "broker without a parent first, or start it with an empty journal"
            )
        is_alone = not self._context.state.tree and not numbers.free
        is_free = kept is None and not numbers.last and is_alone
        if is_free and not numbers.has_given:
            return [IdentifiersKept(child=child, count=numbers_used)]
        raise LayoutError(
            f"{given}, and others may have the same",
            hint="let the cloud that was there first join first; start this one with an empty "
            "journal, and let its end-points register again",
        )

    def check_tree(self, above: tuple[str, ...]) -> None:
        """Raise if identifiers leased in another tree may also be in use below these brokers."""
        state = self._context.state
        if not state.tree or state.tree in above or not state.numbers.is_leased:
            return
        if state.placed is not None and state.placed.above[-len(above) :] == above:
            return  # A broker above has lost its parent, and continues with its leased blocks.
        raise LayoutError(
            f"identifiers of variables below {self._context.settings.name} are leased in the tree "
            f"of {state.tree}, and others may have the same in this one: let it join that tree, or "
            "start it and all brokers below it with empty journals"
        )

    @property
    def numbers_used(self) -> int:
        """Number of identifiers given out below this broker before it had a parent."""
        return self._context.state.numbers.last

    def record_journal(self, child: str, journal: str) -> None:
        """Record the journal in which a child numbers its requests from this session on.

        Blocks of an earlier journal are never given out again: what is left of them is lost.
        """
        if self._journals.get(child, journal) != journal:
            self._waiting = {key: count for key, count in self._waiting.items() if key[0] != child}
        self._journals[child] = journal
        numbers = self._context.state.numbers
        if not numbers.is_of(child, journal):
            self._context.note("numbers_lost", child=child, given=numbers.total(child))

    def ask(self, child: str, message: AskNumbers) -> None:
        """Handle a child's request; 0 is no valid request number."""
        if message.request > 0:
            self._reply_to(child, message.request, message.count)

    def _reply_to(self, child: str, request: int, count: int) -> None:
        """Send the one block of a request, however often and in which order requests repeat."""
        numbers = self._context.state.numbers
        journal = self._journals.get(child, "")
        known = numbers.given(child, journal, request)
        if known is not None:
            self._context.when_durable(lambda: self._reply(child, request, known))
        elif not numbers.is_outdated(child, journal, request):
            self._allocate(child, request, count)

    def _allocate(self, child: str, request: int, count: int) -> None:
        numbers = self._context.state.numbers
        if numbers.total(child) + count > self._context.settings.numbers_child_max:
            self._context.note("numbers_refused", child=child, given=numbers.total(child))
            self._reply(child, request, (0, 0))
            return
        block = self._next_block(count)
        if block is None:
            self._wait(child, request, count)
            return
        if not block[1]:
            self._context.note("numbers_used_up", child=child, tree=self._context.state.tree)
            self._reply(child, request, block)
            return
        journal = self._journals.get(child, "")
        given = BlockGiven(
            child=child, request=request, first=block[0], count=block[1], journal=journal
        )
        self._context.decide(
            [given],
            lambda: self._reply(child, request, block),
            lambda _: self._context.later(lambda: self._reply_to(child, request, count)),
        )

    def _next_block(self, count: int) -> Block | None:
        """Return the next block; an empty one if all are used up, None if the parent has more."""
        numbers = self._context.state.numbers
        if not self._context.has_parent and not self._context.state.tree:
            return numbers.next_of_root(count)
        block = numbers.next_of_lease(count)
        if block is None and not self._context.has_parent:
            return 0, 0  # Only the former root knows which identifiers are free.
        return block

    def _wait(self, child: str, request: int, count: int) -> None:
        """Keep the request until the parent gives more; the child repeats one above the limit."""
        if sum(waiting == child for waiting, _ in self._waiting) < WAITING_MAX:
            self._waiting[child, request] = count
            self._request_block(count)

    def _reply(self, child: str, request: int, block: Block) -> None:
        self._context.send_child(
            child,
            NumbersLeased(term=self._context.term, request=request, first=block[0], count=block[1]),
        )

    # Requests to the parent.

    def _request_block(self, count: int) -> None:
        numbers = self._context.state.numbers
        is_coming = any(asked >= count for asked in numbers.asked.values())
        if is_coming or len(numbers.asked) >= ASKED_MAX:
            return
        request = numbers.request_last + 1
        count_asked = max(count, self._context.settings.numbers_block)
        self._context.decide(
            [BlockRequested(request=request, count=count_asked)],
            lambda: self._send_request(request),
            lambda _: self._context.later(lambda: self._request_block(count)),
        )

    def _send_request(self, request: int) -> None:
        count = self._context.state.numbers.asked.get(request)
        if count is not None:
            self._context.send_parent(
                AskNumbers(term=self._context.term, request=request, count=count)
            )

    def parent_joined(self) -> None:
        for request in sorted(self._context.state.numbers.asked):
            self._send_request(request)

    def leased(self, message: NumbersLeased) -> None:
        if message.request not in self._context.state.numbers.asked:
            return
        held = BlockLeased(request=message.request, first=message.first, count=message.count)

        def serve() -> None:
            waiting, self._waiting = self._waiting, {}
            for (child, request), count in waiting.items():
                if message.count:
                    self._reply_to(child, request, count)
                else:
                    self._reply(child, request, (0, 0))

        self._context.decide(
            [held],
            serve,
            lambda _: self._context.later(lambda: self._send_request(message.request)),
        )
