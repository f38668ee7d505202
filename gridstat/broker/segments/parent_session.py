"""The session with the parent: joining, terms, and whether anything can be said at all.

Words that are lost with a session are said again after the next join by whoever has to say them.
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
    """Nothing is said to a parent that has not taken this cloud in, in the present session."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        self.peer = f"broker/{context.settings.parent}"
        self.is_joined = False

    @property
    def term(self) -> int:
        """That of our own words."""
        return self._context.registry.term

    def connect(self) -> None:
        registry = self._context.registry
        self.is_joined = False
        join = JoinTree(
            term=self.term,
            clouds=(registry.cloud,),
            numbers_used=registry.tree.numbers_used_in(registry.variable_id_last),
            journal=registry.journal,
        )
        self._context.send(self.peer, join)

    def disconnect(self) -> None:
        self.is_joined = False

    def tell(self, word: Message) -> None:
        """Say it, if anybody is there; whoever must be heard says it again after a join."""
        if self.is_joined:
            self._context.send(self.peer, word)

    def obeys(self, word: TreeMessageBase) -> bool:
        """Whether the word is of no term before the highest that was heard."""
        known = self._context.registry.tree.parent_term
        if word.term >= known:
            return True
        stale = StaleTerm(
            f"broker {self._context.settings.parent} speaks for term {word.term}, and {known} was "
            "heard of it before"
        )
        self.leave(stale)
        return False

    def leave(self, error: GridStatError) -> None:
        """End the session: after the next join all is said again."""
        self.is_joined = False
        self._context.close(self.peer, error)

    def join(self, joined: TreeJoined) -> bool:
        """Take the parent's answer; whether the session has just begun by it."""
        registry, tree = self._context.registry, self._context.registry.tree
        heard = ParentJoined(
            term=joined.term,
            depth=joined.depth,
            above=joined.above,
            numbers_used=tree.numbers_used_in(registry.variable_id_last),
        )
        before = tree.parent_term, tree.depth, tree.above
        if before != (heard.term, heard.depth, heard.above):
            self._context.commit([heard], no_op, self._not_kept)
        is_first, self.is_joined = not self.is_joined, True
        if is_first:
            self._context.note(
                "tree_joined", parent=self._context.settings.parent, depth=joined.depth
            )
        return is_first

    def _not_kept(self, why: str) -> None:
        """A term that a restart would forget must not be obeyed: join again, with more luck."""
        self.leave(StorageFailed(f"the parent's term could not be kept: {why}"))
