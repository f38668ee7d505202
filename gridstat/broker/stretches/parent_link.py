"""The session with the parent: joining, terms, and whether anything can be said at all.

Words that are lost with a session are said again after the next join by whoever has to say them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.records.tree_operations import ParentHeard
from gridstat.broker.turn import nothing
from gridstat.model.errors import StaleTerm, StorageFailed
from gridstat.net.command.tree_messages import JoinTree

if TYPE_CHECKING:
    from gridstat.broker.desk import Desk
    from gridstat.model.errors import GridStatError
    from gridstat.net.command.messages import Message
    from gridstat.net.command.tree_messages import TreeJoined, TreeWord


class ParentLink:
    """Nothing is said to a parent that has not taken this cloud in, in the present session."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk
        self.peer = f"broker/{desk.settings.parent}"
        self.is_joined = False

    @property
    def term(self) -> int:
        """That of our own words."""
        return self._desk.registry.term

    def connect(self) -> None:
        registry = self._desk.registry
        self.is_joined = False
        join = JoinTree(
            term=self.term,
            clouds=(registry.cloud,),
            numbers_used=registry.tree.numbers_used_in(registry.variable_id_last),
            journal=registry.journal,
        )
        self._desk.send(self.peer, join)

    def disconnect(self) -> None:
        self.is_joined = False

    def tell(self, word: Message) -> None:
        """Say it, if anybody is there; whoever must be heard says it again after a join."""
        if self.is_joined:
            self._desk.send(self.peer, word)

    def obeys(self, word: TreeWord) -> bool:
        """Whether the word is of no term before the highest that was heard."""
        known = self._desk.registry.tree.parent_term
        if word.term >= known:
            return True
        stale = StaleTerm(
            f"broker {self._desk.settings.parent} speaks for term {word.term}, and {known} was "
            "heard of it before"
        )
        self.leave(stale)
        return False

    def leave(self, error: GridStatError) -> None:
        """End the session: after the next join all is said again."""
        self.is_joined = False
        self._desk.close(self.peer, error)

    def join(self, joined: TreeJoined) -> bool:
        """Take the parent's answer; whether the session has just begun by it."""
        registry, tree = self._desk.registry, self._desk.registry.tree
        heard = ParentHeard(
            term=joined.term,
            depth=joined.depth,
            above=joined.above,
            numbers_used=tree.numbers_used_in(registry.variable_id_last),
        )
        before = tree.parent_term, tree.depth, tree.above
        if before != (heard.term, heard.depth, heard.above):
            self._desk.commit([heard], nothing, self._not_kept)
        is_first, self.is_joined = not self.is_joined, True
        if is_first:
            self._desk.note("tree_joined", parent=self._desk.settings.parent, depth=joined.depth)
        return is_first

    def _not_kept(self, why: str) -> None:
        """A term that a restart would forget must not be obeyed: join again, with more luck."""
        self.leave(StorageFailed(f"the parent's term could not be kept: {why}"))
