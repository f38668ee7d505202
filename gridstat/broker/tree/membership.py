"""Who is there: children that join and leave, and the parent that this broker itself joins.

Terms fence both ways: a child of a lower term than was heard before is another process that does
not know yet that it is over, and so is such a parent.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec import structs

from gridstat.broker.tree import channel_prefixes
from gridstat.broker.tree.tree_operations import ChildReported, Placed
from gridstat.model.errors import (
    GridStatError,
    LayoutError,
    NotAuthorised,
    StaleTerm,
    StorageFailed,
)
from gridstat.net.command.tree_messages import ABOVE_MAX, CloudsChanged, JoinTree, TreeJoined

if TYPE_CHECKING:
    from gridstat.broker.tree.identifier_leases import IdentifierLeases
    from gridstat.broker.tree.tree_context import TreeContext
    from gridstat.broker.tree.tree_operations import TreeOperation, Unplaced
    from gridstat.net.command.tree_messages import TreeMessageBase


EARLY_WORDS_MAX: Final = 100_000

Standing: TypeAlias = tuple[Placed | None, int]


class MembershipListener(Protocol):
    """Notified of children and of the parent, once the session concerned counts."""

    def child_joined(self, child: str) -> None: ...

    def child_left(self, child: str) -> None: ...

    def clouds_changed(self, child: str) -> None: ...

    def parent_joined(self) -> None: ...

    def parent_replaced(self) -> None:
        """Release what the previous parent had reserved or committed."""

    def place_changed(self) -> None: ...

    def parent_message_kept(self, message: TreeMessageBase) -> None:
        """Handle a message that was kept while this broker's place was being written."""


class Membership:
    """Sessions with the children and with the parent."""

    def __init__(
        self, context: TreeContext, leases: IdentifierLeases, listener: MembershipListener
    ) -> None:
        self._context = context
        self._leases = leases
        self._listener = listener
        self._terms: dict[str, int] = {}
        self._sessions: set[str] = set()
        self._unplaced: dict[str, int] = {}
        """Brokers that have joined before this one knows its own place, and their terms."""
        self._clouds_said: tuple[str, ...] = ()
        self._early: list[TreeMessageBase] | None = None
        self._placing = 0
        """Places that the parent has told in this session, and that are not durable yet."""
        self._parent_session = 0
        """Which session with the parent this is: what an earlier one began is not of this one."""

    # Sessions.

    def connect(self, name: str) -> None:
        if name == self._context.settings.parent:
            self._begin_parent_session()
            self.say_joining()
        elif name not in self._context.state.families.children:
            self._close(name, self._no_child(name))
        else:
            self._sessions.add(name)

    def disconnect(self, name: str) -> None:
        if name == self._context.settings.parent:
            self._begin_parent_session()
            return
        self._sessions.discard(name)
        self._terms.pop(name, None)
        if name in self._context.joined:
            self._context.joined.discard(name)
            self._listener.child_left(name)

    def _begin_parent_session(self) -> None:
        self._context.is_parent_joined = False
        self._early = None
        self._placing = 0
        self._parent_session += 1

    def say_joining(self) -> None:
        families = self._context.state.families
        self._clouds_said = families.clouds()
        self._context.send(
            f"broker/{self._context.settings.parent}",
            JoinTree(
                term=self._context.term,
                clouds=self._clouds_said,
                height=families.height,
                numbers_used=self._leases.numbers_used,
                journal=self._context.state.journal,
                prefixes=channel_prefixes.in_scope(self._context.state),
            ),
        )

    # Children.

    def join(self, name: str, message: JoinTree) -> None:
        families = self._context.state.families
        known = families.children.get(name)
        if known is None:
            self._close(name, self._no_child(name))
            return
        if message.term < known.term:
            self._close(name, self._stale(name, message.term, known.term))
            return
        try:
            families.check(name, message.clouds)
            if not message.height and message.clouds != (name,):
                raise LayoutError(f"{name} is a cloud's broker, and may have no cloud but its own")
            kept = self._leases.joining(name, message.numbers_used)
        except GridStatError as error:
            self._close(name, error)
            return
        self._leases.hear_journal(name, message.journal)
        heard = ChildReported(
            name=name,
            term=message.term,
            clouds=message.clouds,
            height=message.height,
            prefixes=message.prefixes,
        )
        self._sessions.add(name)
        self._terms[name] = message.term
        has_changed = (known.clouds, known.height) != (heard.clouds, heard.height)
        is_new = has_changed or (known.term, known.prefixes) != (heard.term, heard.prefixes)
        moved = self._making_room(heard.prefixes)
        operations: list[TreeOperation] = [heard] if is_new else []
        operations += [*kept, *moved]
        if not operations:
            self._joined(name, message.term, has_changed=False)
            return

        def joined() -> None:
            if moved:
                self._tell_places()
            self._joined(name, message.term, has_changed=has_changed or bool(kept))

        self._context.decide(
            operations,
            joined,
            lambda reason: self._close(name, StorageFailed(f"not taken in: {reason}")),
        )

    def _making_room(self, taken: tuple[int, ...]) -> list[Placed | Unplaced]:
        """Another prefix for this broker's channels, if it can have one and a child needs it."""
        state = self._context.state
        own = state.channels.prefix
        if own not in taken or state.is_holding or not self._context.is_placed:
            return []
        above = set(channel_prefixes.below_parent(state)) - {own}
        below = state.families.prefixes() | set(taken)
        prefix = channel_prefixes.chosen(state, above, below, depth=state.depth)
        return [] if prefix == own else [state.standing(prefix)]

    def _joined(self, name: str, term: int, *, has_changed: bool) -> None:
        if name not in self._sessions or self._terms.get(name) != term:
            return  # The session is gone, or another has begun.
        if not self._context.is_placed and self._context.state.families.children[name].height:
            self._unplaced[name] = term
            return  # It may hold something in its place by then, and could not leave it.
        self._context.joined.add(name)
        self._place(name)
        if name not in self._context.joined:
            return
        self._context.note("child_joined", child=name, term=term)
        if has_changed and self._context.is_parent_joined:
            self._say_clouds()
        self._listener.child_joined(name)

    def change_clouds(self, name: str, message: CloudsChanged) -> None:
        families = self._context.state.families
        known = families.children[name]
        try:
            families.check(name, message.clouds)
        except GridStatError as error:
            self._close(name, error)
            return
        heard = ChildReported(
            name=name,
            term=known.term,
            clouds=message.clouds,
            height=known.height,
            prefixes=known.prefixes,
        )

        def changed() -> None:
            self._say_clouds()
            self._listener.clouds_changed(name)

        self._context.decide(
            [heard],
            changed,
            lambda reason: self._close(name, StorageFailed(f"not taken in: {reason}")),
        )

    def dismiss(self, name: str) -> None:
        """It is no child any more."""
        self._sessions.discard(name)
        self._close(name, self._no_child(name))

    def end_session(self, name: str, error: GridStatError) -> None:
        """End the session of a child, or with the parent; it may begin again."""
        self._context.note("sent_away", broker=name, reason=str(error.args[0]))
        if name == self._context.settings.parent:
            self.leave_parent(error)
        else:
            self._close(name, error)

    def hears(self, name: str, term: int) -> bool:
        """Whether a word of a child counts: it has joined, with this term."""
        return name in self._context.joined and self._terms.get(name) == term

    def _place(self, name: str) -> None:
        """Where a child stands; not before this broker knows where it stands itself."""
        placed = self._context.state.placed
        if self._context.has_parent and placed is None:
            above: tuple[str, ...] = (self._context.settings.parent, self._context.settings.name)
        else:
            above = (*(placed.above if placed is not None else ()), self._context.settings.name)
        if len(above) > ABOVE_MAX:
            self._close(name, self._too_deep(name))
            return
        self._context.send_child(
            name,
            TreeJoined(
                term=self._context.term,
                depth=self._context.state.depth + 1,
                above=above,
                prefixes=channel_prefixes.below_parent(self._context.state),
            ),
        )

    def _tell_places(self) -> None:
        """Children stand elsewhere, or may not have the same prefixes as before."""
        for name in sorted(self._context.joined):
            self._place(name)
        self._listener.place_changed()

    # The parent.

    def take_answer(self, message: TreeJoined) -> None:
        known = self._parent_term()
        if message.term < known:
            self.refuse_parent(message.term, known)
            return
        try:
            wanted = self._wanted(message)
        except GridStatError as error:
            self.end_session(self._context.settings.parent, error)
            return
        before = self._standing()
        is_known = before == (structs.replace(wanted, numbered_at=-1), wanted.numbered_at)
        self._placing += 1
        if is_known and not self._context.pending_count:
            self._take_place(self._parent_session, before)
            return
        if self._early is None:
            self._early = []
        is_other = before[0] is not None and not before[0].is_below(wanted.parent)
        parted = self._context.state.parted() if is_other else []
        self._context.decide(
            [] if is_known else [wanted, *parted],
            partial(self._take_place, self._parent_session, before, has_parted=bool(parted)),
            lambda reason: self.leave_parent(StorageFailed(f"not joined: {reason}")),
        )

    def _wanted(self, message: TreeJoined) -> Placed:
        """Where this broker is to stand; raises if it cannot."""
        state, above = self._context.state, channel_prefixes.told_above(message)
        self._leases.check_tree(message.above)
        below = state.families.prefixes()
        return Placed(
            term=message.term,
            depth=message.depth,
            above=message.above,
            numbered_at=channel_prefixes.chosen(state, above, below, depth=message.depth),
            prefixes=message.prefixes,
            parent=self._context.settings.parent,
        )

    def _parent_term(self) -> int:
        """The highest that was heard of this parent; another one counts its own."""
        placed = self._context.state.placed
        is_its_own = placed is not None and placed.is_below(self._context.settings.parent)
        return placed.term if placed is not None and is_its_own else 0

    def keeps(self, message: TreeMessageBase) -> bool:
        """Keep a word that comes while our place is being made durable; it is said only once."""
        if self._early is None or len(self._early) >= EARLY_WORDS_MAX:
            return False
        self._early.append(message)
        return True

    def obeys(self, term: int) -> bool:
        known = self._parent_term()
        if term >= known:
            return self._context.is_parent_joined
        self.refuse_parent(term, known)
        return False

    def refuse_parent(self, term: int, known: int) -> None:
        self.leave_parent(self._stale(self._context.settings.parent, term, known))

    def leave_parent(self, error: GridStatError) -> None:
        self._begin_parent_session()
        self._context.close(f"broker/{self._context.settings.parent}", error)

    def _standing(self) -> Standing:
        """All that children go by, and the term."""
        return self._context.state.placed, self._context.state.channels.prefix

    def _take_place(self, session: int, before: Standing, *, has_parted: bool = False) -> None:
        is_present = session == self._parent_session
        is_first = is_present and not self._context.is_parent_joined
        if is_present:
            self._context.is_parent_joined = True
        if has_parted:
            self._listener.parent_replaced()
        if not _is_same_place(self._standing(), before):
            self._tell_places()
        unplaced, self._unplaced = self._unplaced, {}
        for name, term in unplaced.items():
            self._joined(name, term, has_changed=False)
        if not is_present:
            return  # The parent has not taken us in yet in the session that there is now.
        self._placing -= 1
        if is_first:
            self._context.note("tree_joined", parent=self._context.settings.parent)
            if self._clouds_said != self._context.state.families.clouds():
                self._say_clouds()  # A child has joined while the parent's answer was on its way.
            self._listener.parent_joined()
        if self._placing:
            return  # Another place is being written, and words before and after it keep order.
        early, self._early = self._early or [], None
        for message in early:
            self._listener.parent_message_kept(message)

    def _say_clouds(self) -> None:
        self._context.send_parent(
            CloudsChanged(term=self._context.term, clouds=self._context.state.families.clouds())
        )

    # Small things.

    def _close(self, name: str, error: GridStatError) -> None:
        self._terms.pop(name, None)
        if name in self._context.joined:
            self._context.joined.discard(name)
            self._listener.child_left(name)
        self._context.close(f"broker/{name}", error)

    def _no_child(self, name: str) -> NotAuthorised:
        return NotAuthorised(
            f"rule tree: {name} is not among the children of {self._context.settings.name}",
            hint="name it in the broker's file, or add it",
        )

    @staticmethod
    def _too_deep(name: str) -> LayoutError:
        return LayoutError(
            f"{name} would have more than {ABOVE_MAX} brokers above it",
            hint="let brokers near the root have more children each",
        )

    @staticmethod
    def _stale(name: str, term: int, known: int) -> StaleTerm:
        return StaleTerm(f"broker {name} speaks for term {term}, and {known} was heard before")


def _is_same_place(one: Standing, other: Standing) -> bool:
    """Whether children would be told the same."""
    (placed, prefix), (before, prefix_before) = one, other
    if placed is None or before is None or prefix != prefix_before:
        return False
    return placed == structs.replace(before, term=placed.term)
