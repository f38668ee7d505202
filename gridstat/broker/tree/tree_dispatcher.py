"""Dispatcher of messages from children and from the parent: one capability handles each message.

Messages of a session that does not count are dropped, since their sender repeats them after a join.
A message that a component fails to handle ends the session of its sender, so that one faulty broker
does not stop the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import Refused
from gridstat.net.command.tree_messages import JoinTree, TreeJoined, TreeMessageBase

if TYPE_CHECKING:
    from gridstat.broker.tree.membership import Membership
    from gridstat.broker.tree.tree_capability import TreeCapabilities
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.net.command.messages import Message


class TreeDispatcher:
    """Routes each message by its type; a child is checked for what it reports first.

    `JoinTree` and `TreeJoined` begin a session, and so belong to the membership. All other messages
    belong to the capability that has registered them.
    """

    def __init__(
        self, context: TreeContext, membership: Membership, capabilities: TreeCapabilities
    ) -> None:
        self._context = context
        self._membership = membership
        self._capabilities = capabilities

    def receive(self, name: str, message: Message) -> bool:
        """Dispatch a message; return whether brokers may send such a message to this one."""
        if not isinstance(message, TreeMessageBase):
            return False
        try:
            if name == self._context.settings.parent:
                return self.receive_from_parent(message)
            return self._receive_from_child(name, message)
        except Exception as error:  # One faulty message must not stop the other brokers.
            self._end_failed_session(name, message, error)
            return True

    def _end_failed_session(self, name: str, message: TreeMessageBase, error: Exception) -> None:
        """Undo what was decided and not written, and end the session of the sender.

        Durable state and charges change in one place each, which shows whether a change was left
        incomplete. If so, this process has to end, and starts again from its journal. Other state
        belongs to open requests, which are repeated after a join or end at their deadline. At worst
        a plan stays charged, and less is granted than would be possible.
        """
        context = self._context
        if context.state.is_torn:
            raise error
        context.abandon()
        kind = type(message).__name__
        context.note("message_failed", broker=name, said=kind, error=repr(error))
        hint = f"see message_failed in the log of broker {context.settings.name}"
        failed = Refused(f"the broker failed to handle {kind}", hint=hint)
        self._membership.end_session(name, failed)

    def _receive_from_child(self, child: str, message: TreeMessageBase) -> bool:
        if isinstance(message, JoinTree):
            self._membership.join(child, message)
            return True
        if not self._membership.accepts(child, message.term):
            return True  # The sender has not joined, or a later process of the child has.
        registered = self._capabilities.child_messages.get(type(message))
        if registered is None:
            return False
        if registered.is_own(child, message):
            registered.handle(child, message)
        else:
            self._context.note("not_its_own", child=child, said=type(message).__name__)
        return True

    def receive_from_parent(self, message: TreeMessageBase) -> bool:
        """Dispatch a message of the parent, at once or after this broker's place is durable."""
        if isinstance(message, TreeJoined):
            self._membership.receive_place(message)
            return True
        if self._membership.keeps(message) or not self._membership.obeys(message.term):
            return True
        handle = self._capabilities.parent_messages.get(type(message))
        if handle is None:
            return False
        handle(message)
        return True
