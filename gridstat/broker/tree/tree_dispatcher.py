"""Which part hears which word, of children and of the parent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gridstat.broker.tree.flooding_changes import FloodingMessage
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
    CommitFlooding,
    EndWatch,
    FloodingEnded,
    JoinTree,
    NamesFound,
    NumbersLeased,
    OpenBorder,
    ReleaseFlooding,
    ReserveFlooding,
    TreeJoined,
    TreeMessageBase,
    WantBorders,
    WatchNames,
)

if TYPE_CHECKING:
    from gridstat.broker.tree.components import Components
    from gridstat.net.command.messages import Message


class TreeDispatcher:
    """Words of a session that does not count are dropped: they are said again after a join."""

    def __init__(self, parts: Components) -> None:
        self._parts = parts

    def receive(self, name: str, message: Message) -> bool:
        """Whether this broker has any business with such a word."""
        if not isinstance(message, TreeMessageBase):
            return False
        try:
            if name == self._parts.context.settings.parent:
                return self.receive_from_parent(message)
            return self._hear_below(name, message)
        except Exception as error:  # Whatever one broker says, the others are served.
            self._go_on_without(name, message, error)
            return True

    def _go_on_without(self, name: str, message: TreeMessageBase, error: Exception) -> None:
        """Undo what this turn has decided and not written, and end the session of who said it.

        What is durable and what is charged change each in one place, which shows whether it was
        left half way. Then this process has to end: nobody can tell what to undo, and the journal
        is right. All else is about what is under way. It is said again after a join, or given up
        when its time is over; at worst a plan stays charged, and less is promised than could be.
        """
        context = self._parts.context
        if context.state.is_torn:
            raise error
        context.abandon()
        word = type(message).__name__
        context.note("word_failed", broker=name, said=word, error=repr(error))
        hint = f"tell who runs broker {context.settings.name}: its log says word_failed"
        failed = Refused(f"the broker failed over {word}", hint=hint)
        self._parts.membership.end_session(name, failed)

    def _hear_below(self, child: str, message: TreeMessageBase) -> bool:
        parts = self._parts
        if isinstance(message, JoinTree):
            parts.membership.join(child, message)
        elif not parts.membership.accepts(child, message.term):
            pass  # It has not joined, or is another process than the one that has.
        elif not self._is_its_own(child, message):
            parts.context.note("not_its_own", child=child, said=type(message).__name__)
        elif isinstance(message, FloodingMessage):
            parts.flooding.receive(child, message)
        else:
            return self._hear_child(child, message) or self._hear_of_segment(child, message)
        return True

    def _is_its_own(self, child: str, message: TreeMessageBase) -> bool:
        """Whether a child speaks of what lies below itself; it has no say in anything else."""
        families = self._parts.context.state.families
        match message:
            case AskContract(contract=name) | EndContract(contract=name):
                return families.child_of(name.partition("#")[0]) == child
            case WatchNames(watch=name) | EndWatch(watch=name):
                return families.child_of(name.partition("#")[0]) == child
            case BorderReported(router=name) | FloodingEnded(name=name):
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

    def _hear_of_ways(self, child: str, message: AbstractLinksReported) -> None:
        if self._parts.graph.tell(child, message):
            self._parts.replanning.try_again()

    def _hear_child(self, child: str, message: TreeMessageBase) -> bool:
        parts = self._parts
        match message:
            case BorderReported():
                parts.borders.border_told(message)
            case BorderChannelReported():
                parts.borders.channel_told(child, message)
            case AbstractLinksReported():
                self._hear_of_ways(child, message)
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

    def _hear_of_segment(self, child: str, message: TreeMessageBase) -> bool:
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
        match message:
            case WantBorders():
                parts.borders.want(message)
                parts.graph.tell_parent(is_forced=True)
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
                return self._hear_order(message)
        return True

    def _hear_order(self, message: TreeMessageBase) -> bool:
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
            case ReserveFlooding() | CommitFlooding() | ReleaseFlooding():
                parts.flooding.obey(message)
            case _:
                return False
        return True
