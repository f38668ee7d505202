"""The leaf broker's session with its parent: joining, and the terms of both.

States: disconnected, joining (JoinTree sent), joined (TreeJoined received). The broker sends
messages only when joined; earlier ones are dropped. Each component sends its unanswered messages
again after the next join, so a lost message needs no timeout here; the session itself detects a
silent peer. A message with a lower term than the stored one comes from an old process of the
parent: the session ends with `StaleTerm`. The stored term of a former parent does not count, since
each counts its own. The parent's term is durable before the broker counts on it; if the journal
cannot store the term, the session ends and the broker joins again. A restart begins at
disconnected.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.parent_operations import ParentJoined
from gridstat.broker.unit_of_work import no_op
from gridstat.model.errors import StaleTerm, StorageFailed
from gridstat.net.command.tree_messages import JoinTree

if TYPE_CHECKING:
    from gridstat.broker.context import BrokerContext
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.messages import Message
    from gridstat.net.command.tree_messages import TreeJoined, TreeMessageBase


class ParentSession:
    """Sends to the parent only after the parent has answered JoinTree in the present session."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.peer = f"broker/{context.settings.parent}"
        self.is_joined = False

    @property
    def term(self) -> int:
        """Term of our own messages."""
        return self._context.registry.term

    def connect(self) -> None:
        registry = self._context.registry
        self.is_joined = False  # The session is new, also to a parent that was joined before.
        join = JoinTree(
            term=self.term,
            clouds=(registry.cloud,),
            numbers_used=registry.tree.numbers_used_in(registry.variable_id_last),
            journal=registry.journal,
        )
        self._context.send(self.peer, join)

    def disconnect(self) -> None:
        self.is_joined = False

    def send(self, message: Message) -> None:
        """Send a message if joined; a component whose message must arrive sends it again after a
        join."""
        if self.is_joined:
            self._context.send(self.peer, message)

    def accepts(self, message: TreeMessageBase) -> bool:
        """Return whether the message has a current term; end the session otherwise."""
        known = self._context.registry.tree.term_of(self._context.settings.parent)
        if message.term >= known:
            return True
        stale = StaleTerm(
            f"broker {self._context.settings.parent} sent term {message.term}, "
            f"below the known term {known}"
        )
        self.end(stale)
        return False

    def end(self, error: GridStatError) -> None:
        """End the session; both sides send their state again after the next join."""
        self.is_joined = False
        self._context.close(self.peer, error)

    def join(self, joined: TreeJoined) -> bool:
        """Handle TreeJoined; return whether the session has joined just now."""
        registry, tree = self._context.registry, self._context.registry.tree
        joined_operation = ParentJoined(
            term=joined.term,
            depth=joined.depth,
            above=joined.above,
            numbers_used=tree.numbers_used_in(registry.variable_id_last),
        )
        # Only a change is written: a session that is lost and restored costs no commit.
        before = tree.parent_term, tree.depth, tree.above
        if before != (joined_operation.term, joined_operation.depth, joined_operation.above):
            self._context.commit([joined_operation], no_op, self._term_not_stored)
        is_first, self.is_joined = not self.is_joined, True
        if is_first:
            self._context.note(
                "tree_joined", parent=self._context.settings.parent, depth=joined.depth
            )
        return is_first

    def _term_not_stored(self, why: str) -> None:
        """End the session, since a restart would forget a term that is not stored."""
        self.end(StorageFailed(f"the parent's term could not be stored: {why}"))
