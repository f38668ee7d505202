"""Dispatcher of messages from children and from the parent: one component handles each message.

Messages of a session that does not count are dropped, since their sender repeats them after a join.
A message that a component fails to handle ends the session of its sender, so that one faulty broker
does not stop the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.model.errors import Refused
from gridstat.net.command.segment_messages import (
    AskContract,
    Commit,
    ContractEnded,
    ContractGranted,
    ContractRefused,
    EndContract,
    LookedUp,
    Lookup,
    NotReserved,
    Release,
    Released,
    Reserve,
    Reserved,
    SegmentBroken,
    SegmentRestored,
    SegmentsHeld,
    SegmentUp,
)
from gridstat.net.command.tree_messages import (
    AbstractLinksReported,
    AskNumbers,
    BorderChannelReported,
    BorderReported,
    CloseBorder,
    CloudsChanged,
    EndWatch,
    JoinTree,
    NamesFound,
    NumbersLeased,
    OpenBorder,
    TreeJoined,
    TreeMessageBase,
    WantBorders,
    WatchNames,
)

if TYPE_CHECKING:
    from gridstat.broker.tree.components import Components
    from gridstat.net.command.messages import Message


class TreeDispatcher:
    """Routes each message by its type; a child is checked for what it reports first."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts

    def receive(self, name: str, message: Message) -> bool:
        """Dispatch a message; return whether brokers may send such a message to this one."""
        if not isinstance(message, TreeMessageBase):
            return False
        try:
            if name == self._parts.context.settings.parent:
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
        context = self._parts.context
        if context.state.is_torn:
            raise error
        context.abandon()
        kind = type(message).__name__
        context.note("word_failed", broker=name, said=kind, error=repr(error))
        hint = f"see word_failed in the log of broker {context.settings.name}"
        failed = Refused(f"the broker failed to handle {kind}", hint=hint)
        self._parts.membership.end_session(name, failed)

    def _receive_from_child(self, child: str, message: TreeMessageBase) -> bool:
        parts = self._parts
        registered = parts.capabilities.child_messages.get(type(message))
        is_own = self._is_about_own_scope if registered is None else registered.is_own
        if isinstance(message, JoinTree):
            parts.membership.join(child, message)
        elif not parts.membership.accepts(child, message.term):
            pass  # The sender has not joined, or a later process of the child has.
        elif not is_own(child, message):
            parts.context.note("not_its_own", child=child, said=type(message).__name__)
        elif registered is not None:
            registered.handle(child, message)
        else:
            return self._dispatch_report(child, message) or self._dispatch_segment(child, message)
        return True

    def _is_about_own_scope(self, child: str, message: TreeMessageBase) -> bool:
        """Return whether a message of a child is about its own part of the tree."""
        families = self._parts.context.state.families
        match message:
            case AskContract(contract=name) | EndContract(contract=name):
                return families.child_of(name.partition("#")[0]) == child
            case WatchNames(watch=name) | EndWatch(watch=name):
                return families.child_of(name.partition("#")[0]) == child
            case BorderReported(router=name):
                return families.child_at(name) == child
            case AbstractLinksReported(abstract_links=abstract_links):
                return all(
                    families.child_at(end) == child
                    for found in abstract_links
                    for end in (found.from_router, found.to_router)
                )
            case BorderChannelReported(channel_id=channel_id):
                return self._parts.borders.is_at(child, channel_id)
            case _:
                return True

    def _receive_abstract_links(self, child: str, message: AbstractLinksReported) -> None:
        if self._parts.graph.receive(child, message):
            self._parts.replanning.try_again()

    def _dispatch_report(self, child: str, message: TreeMessageBase) -> bool:
        parts = self._parts
        match message:
            case BorderReported():
                parts.borders.border_reported(message)
            case BorderChannelReported():
                parts.borders.channel_reported(child, message)
            case AbstractLinksReported():
                self._receive_abstract_links(child, message)
            case CloudsChanged():
                parts.membership.change_clouds(child, message)
            case AskNumbers():
                parts.leases.ask(child, message)
            case WatchNames():
                parts.watches.watch(child, message)
            case EndWatch():
                parts.watches.end(child, message)
            case NamesFound():
                parts.watches.found(message)
            case AskContract():
                parts.contracts.request(child, message)
            case EndContract():
                parts.contracts.end(child, message)
            case LookedUp():
                parts.lookups.receive(child, message)
            case _:
                return False
        return True

    def _dispatch_segment(self, child: str, message: TreeMessageBase) -> bool:
        parts = self._parts
        match message:
            case Reserved(is_moved=True):
                parts.moved_segments.receive(child, message)
            case Reserved():
                parts.coordinator.reserved(child, message)
            case NotReserved():
                parts.coordinator.not_reserved(child, message)
            case SegmentUp(contract=contract, generation=generation):
                parts.commits.confirm((contract, generation), child, message.degraded)
            case Released(contract=contract, generation=generation):
                parts.releases.released((contract, generation), child, message.round)
            case SegmentBroken():
                parts.replanning.segment_broken(child, message)
            case SegmentRestored():
                parts.replanning.segment_restored(child, message)
            case SegmentsHeld():
                parts.reconciliation.receive(child, message)
            case _:
                return False
        return True

    def receive_from_parent(self, message: TreeMessageBase) -> bool:
        parts = self._parts
        if isinstance(message, TreeJoined):
            parts.membership.receive_place(message)
            return True
        if parts.membership.keeps(message):
            return True
        if not parts.membership.obeys(message.term):
            return True
        handle = parts.capabilities.parent_messages.get(type(message))
        if handle is not None:
            handle(message)
            return True
        match message:
            case WantBorders():
                parts.borders.want(message)
                parts.graph.report_to_parent(is_forced=True)
            case OpenBorder():
                parts.borders.open_above(message)
            case CloseBorder():
                parts.borders.close_above(message)
            case NumbersLeased():
                parts.leases.leased(message)
            case WatchNames():
                parts.watches.watch("", message)
            case EndWatch():
                parts.watches.end("", message)
            case NamesFound():
                parts.watches.found(message)
            case _:
                return self._dispatch_order(message)
        return True

    def _dispatch_order(self, message: TreeMessageBase) -> bool:
        parts = self._parts
        match message:
            case ContractGranted() | ContractRefused() | ContractEnded():
                parts.contracts.forward_down(message)
            case Lookup():
                parts.lookups.answer_parent(message)
            case Reserve():
                parts.segments.reserve(message)
            case Commit():
                parts.segments.commit(message)
            case Release():
                parts.segments.release(message)
            case _:
                return False
        return True
